/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/policy.h"
#include "tests/support/leak.h"

enum { OWNER = 1000, GROUP = 50, MEMBER = 1001, STRANGER = 1002, ADMIN = 1003, ADMIN_GID = 9 };

static struct tdd_subject subject_new(uint32_t uid, uint32_t gid, uint32_t extra_gid)
{
	struct tdd_subject subject;
	uint32_t *groups = malloc(sizeof(*groups));

	cr_assert(groups);
	groups[0] = extra_gid;
	tdd_subject_init(&subject, uid, gid, groups, 1, ADMIN_GID);
	return subject;
}

struct right_case {
	uint32_t mode;
	const char *who; /* what each may: owner, member by first group, by other group, stranger */
};

TT_TEST(policy, the_first_class_that_fits_decides)
{
	static const struct right_case cases[] = {
		{0600, "rw -- -- --"}, {0640, "rw r- r- --"}, {0660, "rw rw rw --"},
		{0644, "rw r- r- r-"}, {0666, "rw rw rw rw"}, {0606, "rw -- -- rw"},
		{0066, "-- rw rw rw"}, {0420, "r- -w -w --"}, {0000, "-- -- -- --"},
	};
	struct tdd_subject subjects[] = {
		subject_new(OWNER, OWNER, OWNER),
		subject_new(MEMBER, GROUP, MEMBER),
		subject_new(MEMBER, MEMBER, GROUP),
		subject_new(STRANGER, STRANGER, STRANGER),
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tdd_rights rights = {
			.owner_uid = OWNER, .gid = GROUP, .mode = cases[i].mode};

		for (size_t s = 0; s < sizeof(subjects) / sizeof(subjects[0]); s++) {
			const char *want = cases[i].who + 3 * s;

			cr_expect_eq(tdd_policy_may_read(&subjects[s], &rights), want[0] == 'r',
				     "mode %04o, subject %zu", rights.mode, s);
			cr_expect_eq(tdd_policy_may_write(&subjects[s], &rights), want[1] == 'w',
				     "mode %04o, subject %zu", rights.mode, s);
		}
	}
	for (size_t s = 0; s < sizeof(subjects) / sizeof(subjects[0]); s++)
		tdd_subject_deinit(&subjects[s]);
}

TT_TEST(policy, administrators_see_and_remove_but_do_not_read)
{
	struct tdd_rights rights = {.owner_uid = OWNER, .gid = GROUP, .mode = 0600};
	struct tdd_subject admin = subject_new(ADMIN, ADMIN, ADMIN_GID);
	struct tdd_subject root = subject_new(0, 0, 0);
	struct tdd_subject stranger = subject_new(STRANGER, STRANGER, STRANGER);

	cr_expect(tdd_policy_may_see(&admin, &rights));
	cr_expect(tdd_policy_may_remove(&admin, &rights));
	cr_expect_not(tdd_policy_may_read(&admin, &rights));
	cr_expect_not(tdd_policy_may_write(&admin, &rights));
	cr_expect(tdd_policy_may_read(&root, &rights) && tdd_policy_may_write(&root, &rights));
	cr_expect(tdd_policy_may_remove(&root, &rights));
	cr_expect_not(tdd_policy_may_see(&stranger, &rights));
	cr_expect_not(tdd_policy_may_remove(&stranger, &rights));
	rights.mode = 0666;
	cr_expect(tdd_policy_may_see(&stranger, &rights));
	cr_expect_not(tdd_policy_may_remove(&stranger, &rights));
	tdd_subject_deinit(&admin);
	tdd_subject_deinit(&root);
	tdd_subject_deinit(&stranger);
}

TT_TEST(policy, an_owner_sees_and_removes_whatever_the_mode)
{
	struct tdd_rights rights = {.owner_uid = OWNER, .gid = GROUP, .mode = 0};
	struct tdd_subject owner = subject_new(OWNER, OWNER, OWNER);

	cr_expect(tdd_policy_may_see(&owner, &rights));
	cr_expect(tdd_policy_may_remove(&owner, &rights));
	cr_expect_not(tdd_policy_may_read(&owner, &rights));
	tdd_subject_deinit(&owner);
}

TT_TEST(policy, only_its_user_and_root_stop_a_broker)
{
	struct tdd_subject owner = subject_new(OWNER, OWNER, OWNER);
	struct tdd_subject admin = subject_new(ADMIN, ADMIN, ADMIN_GID);
	struct tdd_subject root = subject_new(0, 0, 0);

	cr_expect(tdd_policy_may_shut_down(&owner, OWNER));
	cr_expect(tdd_policy_may_shut_down(&root, OWNER));
	cr_expect_not(tdd_policy_may_shut_down(&admin, OWNER));
	cr_expect_not(tdd_policy_may_shut_down(&owner, 0));
	tdd_subject_deinit(&owner);
	tdd_subject_deinit(&admin);
	tdd_subject_deinit(&root);
}

TT_TEST(policy, without_an_admin_group_nobody_is_in_it)
{
	struct tdd_subject subject;

	tdd_subject_init(&subject, 1, TDD_GID_NONE, NULL, 5, TDD_GID_NONE);
	cr_expect_not(subject.is_admin);
	cr_expect_eq(subject.group_count, 0);
	tdd_subject_deinit(&subject);
}
