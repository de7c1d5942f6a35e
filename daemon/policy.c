/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights, decided like a file's: the first class that fits (owner, group, others) decides alone.
 * Root may all, as everywhere. Members of group `tidl` see and remove everything, but reading
 * somebody's data is not theirs.
 */
#include "daemon/policy.h"

#include <stddef.h>
#include <stdlib.h>

enum { MODE_READ = 4, MODE_WRITE = 2 };

void tdd_subject_init(struct tdd_subject *subject, uint32_t uid, uint32_t gid, uint32_t *groups,
		      uint32_t group_count, uint32_t admin_gid)
{
	subject->uid = uid;
	subject->gid = gid;
	subject->groups = groups;
	subject->group_count = groups ? group_count : 0;
	subject->is_admin = uid == 0 || (admin_gid != TDD_GID_NONE &&
					 tdd_subject_is_in_group(subject, admin_gid));
}

void tdd_subject_deinit(struct tdd_subject *subject)
{
	free(subject->groups);
	subject->groups = NULL;
	subject->group_count = 0;
}

bool tdd_subject_is_in_group(const struct tdd_subject *subject, uint32_t gid)
{
	if (subject->gid == gid)
		return true;
	for (uint32_t i = 0; i < subject->group_count; i++) {
		if (subject->groups[i] == gid)
			return true;
	}
	return false;
}

static bool may(const struct tdd_subject *subject, const struct tdd_rights *rights, uint32_t bit)
{
	if (subject->uid == 0)
		return true;
	if (subject->uid == rights->owner_uid)
		return rights->mode >> 6 & bit;
	if (tdd_subject_is_in_group(subject, rights->gid))
		return rights->mode >> 3 & bit;
	return rights->mode & bit;
}

bool tdd_policy_may_read(const struct tdd_subject *subject, const struct tdd_rights *rights)
{
	return may(subject, rights, MODE_READ);
}

bool tdd_policy_may_write(const struct tdd_subject *subject, const struct tdd_rights *rights)
{
	return may(subject, rights, MODE_WRITE);
}

bool tdd_policy_may_see(const struct tdd_subject *subject, const struct tdd_rights *rights)
{
	return tdd_policy_may_remove(subject, rights) || tdd_policy_may_read(subject, rights);
}

bool tdd_policy_may_remove(const struct tdd_subject *subject, const struct tdd_rights *rights)
{
	return subject->is_admin || subject->uid == rights->owner_uid;
}

bool tdd_policy_may_shut_down(const struct tdd_subject *subject, uint32_t broker_uid)
{
	return subject->uid == 0 || subject->uid == broker_uid;
}
