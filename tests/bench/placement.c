/* SPDX-License-Identifier: Apache-2.0 */
/* Pinning, and the facts about the machine that a number is worthless without. */
#include "tests/bench/placement.h"

#include <err.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* user nice system idle iowait irq softirq steal */
enum { TICK_STEAL = 7, TICK_FIELDS = 8 };

size_t bench_placements(struct bench_placement ret_placements[BENCH_PLACEMENT_MAX])
{
	cpu_set_t allowed;
	int cpus[2];
	size_t found = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		err(1, "sched_getaffinity");
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			cpus[found++] = cpu;
	ret_placements[0] = (struct bench_placement){
		.name = "same core",
		.client_cpu = cpus[0],
		.server_cpu = cpus[0],
	};
	if (found == 2)
		ret_placements[1] = (struct bench_placement){
			.name = "cross core",
			.client_cpu = cpus[0],
			.server_cpu = cpus[1],
		};
	return found;
}

void bench_pin(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(pid, sizeof(set), &set) < 0)
		err(1, "sched_setaffinity");
}

/* The value behind the first line of /proc/cpuinfo that starts with @key; "" if there is none. */
static void cpuinfo_find(const char *key, char *ret_value, size_t size)
{
	char line[4096];
	FILE *cpuinfo = fopen("/proc/cpuinfo", "re");

	*ret_value = '\0';
	while (cpuinfo && fgets(line, sizeof(line), cpuinfo)) {
		char *value = strchr(line, ':');

		if (!value || strncmp(line, key, strlen(key)) != 0)
			continue;
		value += strspn(value, ": \t");
		value[strcspn(value, "\n")] = '\0';
		snprintf(ret_value, size, "%s", value);
		break;
	}
	if (cpuinfo)
		fclose(cpuinfo);
}

void bench_print_machine(FILE *out)
{
	char model[256];
	char flags[4096];
	struct utsname system;
	cpu_set_t allowed;

	if (uname(&system) < 0 || sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		err(1, "uname");
	cpuinfo_find("model name", model, sizeof(model));
	cpuinfo_find("flags", flags, sizeof(flags));
	fprintf(out, "kernel: %s %s %s\n", system.sysname, system.release, system.machine);
	fprintf(out, "cpu:    %s, %d usable%s\n", *model ? model : "unknown", CPU_COUNT(&allowed),
		strstr(flags, "hypervisor") ? ", in a virtual machine" : "");
}

/* The first eight fields of the line `cpu` in /proc/stat, in ticks; proc(5). */
static bool ticks_read(uint64_t ret_ticks[TICK_FIELDS])
{
	char line[512];
	char *next = line + strlen("cpu");
	FILE *stat = fopen("/proc/stat", "re");
	bool is_read = stat && fgets(line, sizeof(line), stat);

	if (stat)
		fclose(stat);
	for (size_t i = 0; is_read && i < TICK_FIELDS; i++)
		ret_ticks[i] = strtoull(next, &next, 10);
	return is_read;
}

double bench_steal_percent(void)
{
	static uint64_t last_total, last_steal;
	uint64_t ticks[TICK_FIELDS];
	uint64_t total = 0;
	uint64_t total_delta, steal_delta;

	if (!ticks_read(ticks))
		return 0.0;
	for (size_t i = 0; i < TICK_FIELDS; i++)
		total += ticks[i];
	total_delta = total - last_total;
	steal_delta = ticks[TICK_STEAL] - last_steal;
	last_total = total;
	last_steal = ticks[TICK_STEAL];
	return total_delta ? 100.0 * (double)steal_delta / (double)total_delta : 0.0;
}
