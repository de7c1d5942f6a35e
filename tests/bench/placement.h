/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_PLACEMENT_H
#define BENCH_PLACEMENT_H

#include <stdio.h>
#include <sys/types.h>

/* Where processes run: everything on one core, or the client on one and its servers on another. */
struct bench_placement {
	const char *name;
	int client_cpu;
	int server_cpu;
};

enum { BENCH_PLACEMENT_MAX = 2 };

/* The placements this machine has, from the CPUs that this process may use. Returns their count. */
size_t bench_placements(struct bench_placement ret_placements[BENCH_PLACEMENT_MAX]);

/* Pin the first thread of a process; 0 is the caller. */
void bench_pin(pid_t pid, int cpu);

/* Kernel, CPU and hypervisor, in one line each. */
void bench_print_machine(FILE *out);

/* Time stolen by the hypervisor, over all CPUs, since the last call; in percent. */
double bench_steal_percent(void);

#endif
