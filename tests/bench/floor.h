/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What the kernel allows: a bare server process at the other end of a seqpacket pair, which answers
 * a packet of 64 bytes with another one and, when asked, with the descriptor of a memfd that it
 * filled beforehand. No protocol, no checks.
 */
struct bench_floor {
	pid_t server;
	int socket;
};

enum { BENCH_FLOOR_SIZES_MAX = 8 };

/* Start the server with one memfd of each size. Must come before the process has other threads. */
void bench_floor_start(struct bench_floor *floor, const uint64_t *sizes_bytes, size_t size_count);
void bench_floor_stop(struct bench_floor *floor);

/* A round trip without a descriptor. */
void bench_floor_ping(struct bench_floor *floor);

/* A round trip that brings the descriptor of size number @index. Returns it. */
int bench_floor_fetch(struct bench_floor *floor, size_t index);

#endif
