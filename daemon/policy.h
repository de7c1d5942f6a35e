/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_POLICY_H
#define TDD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* Who may do what. Pure functions over numbers that the kernel vouches for. */

/* Somebody who asks. */
struct tdd_subject {
	uint32_t uid;
	uint32_t gid;
	uint32_t group_count;
	uint32_t *groups; /* supplementary ones; owned */
	bool is_admin;	  /* root, or a member of group `tidl` */
};

/* What an object's owner decided. */
struct tdd_rights {
	uint32_t owner_uid;
	uint32_t gid;
	uint32_t mode; /* bits of 0666 */
};

enum { TDD_MODE_DEFAULT = 0600, TDD_MODE_MASK = 0666, TDD_MODE_OTHERS = 0066 };

#define TDD_GID_NONE UINT32_MAX

/* Take the groups over and find out whether @admin_gid (TDD_GID_NONE: no such group) is among
 * them. */
void tdd_subject_init(struct tdd_subject *subject, uint32_t uid, uint32_t gid, uint32_t *groups,
		      uint32_t group_count, uint32_t admin_gid);
void tdd_subject_deinit(struct tdd_subject *subject);

bool tdd_subject_is_in_group(const struct tdd_subject *subject, uint32_t gid);

/* Attach for reading, for writing: owner, group and mode as for files; root may all. */
bool tdd_policy_may_read(const struct tdd_subject *subject, const struct tdd_rights *rights);
bool tdd_policy_may_write(const struct tdd_subject *subject, const struct tdd_rights *rights);

/* See it in listings and inspections: who may read it, its owner, administrators. */
bool tdd_policy_may_see(const struct tdd_subject *subject, const struct tdd_rights *rights);

/* Take its name away: its owner and administrators. */
bool tdd_policy_may_remove(const struct tdd_subject *subject, const struct tdd_rights *rights);

/* Stop the broker of @broker_uid. */
bool tdd_policy_may_shut_down(const struct tdd_subject *subject, uint32_t broker_uid);

#endif
