/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_MILESTONES_H
#define TDD_MILESTONES_H

#include <stdint.h>

struct tdd_hold;

/*
 * Every so many leases of a publication, by their serials: so that a list of a million of them,
 * which is shown page by page, is not walked from its beginning for each page. A zeroed one is
 * empty.
 */
struct tdd_milestone {
	uint64_t serial;
	struct tdd_hold *hold;
};

struct tdd_milestones {
	struct tdd_milestone *items; /* rising; NULL: none */
	uint32_t count;
	uint32_t capacity;
	uint32_t passed_count; /* leases since the last one */
};

void tdd_milestones_deinit(struct tdd_milestones *milestones);

/* A lease was put at the end of the list; its serial is higher than any before. */
void tdd_milestones_append(struct tdd_milestones *milestones, struct tdd_hold *hold);

/* It is about to leave the list. */
void tdd_milestones_remove(struct tdd_milestones *milestones, struct tdd_hold *hold);

/* The last one whose serial is not above @serial; NULL: begin at the beginning. */
struct tdd_hold *tdd_milestones_find(const struct tdd_milestones *milestones, uint64_t serial);

#endif
