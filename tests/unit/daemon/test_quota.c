/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "daemon/limits.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

TT_TEST(quota, charges_every_level_and_gives_back)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_charge charge = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1000);
	cr_assert_eq(tdd_charge_init(&charge, &holder.account, TDD_QUOTA_BYTES, 500, &fault), 0);
	cr_expect_eq(holder.account.used[TDD_QUOTA_BYTES], 500);
	cr_expect_eq(tt_used(&domain, 1000, TDD_QUOTA_BYTES), 500);
	cr_expect_eq(domain.quota.broker.used[TDD_QUOTA_BYTES], 500);
	tdd_charge_deinit(&charge);
	tdd_charge_deinit(&charge);
	cr_expect_eq(domain.quota.broker.used[TDD_QUOTA_BYTES], 0);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, refuses_uid_before_broker_and_says_who)
{
	struct tt_domain domain;
	struct tdd_holder first, second, third;
	struct tdd_charge a = {0}, b = {0}, c = {0}, d = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &first, 1);
	tt_holder_init(&domain, &second, 2);
	tt_holder_init(&domain, &third, 3);
	cr_assert_eq(tdd_charge_init(&a, &first.account, TDD_QUOTA_BYTES, TT_UID_BYTES, &fault), 0);
	cr_expect_eq(tdd_charge_init(&b, &first.account, TDD_QUOTA_BYTES, 1, &fault),
		     TIDL_ERR_QUOTA);
	cr_expect(strstr(fault.text, "uid 1") != NULL, "%s", fault.text);
	cr_assert_eq(tdd_charge_init(&c, &second.account, TDD_QUOTA_BYTES, TT_UID_BYTES, &fault),
		     0);
	cr_expect_eq(tdd_charge_init(&d, &third.account, TDD_QUOTA_BYTES, 1, &fault),
		     TIDL_ERR_LIMIT);
	cr_expect_eq(domain.quota.broker.used[TDD_QUOTA_BYTES], TT_TOTAL_BYTES);
	tdd_charge_deinit(&a);
	tdd_charge_deinit(&c);
	tt_holder_end(&domain, &first);
	tt_holder_end(&domain, &second);
	tt_holder_end(&domain, &third);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, no_amount_overflows)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_charge small = {0}, huge = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	cr_assert_eq(tdd_charge_init(&small, &holder.account, TDD_QUOTA_BYTES, 2, &fault), 0);
	cr_expect_eq(tdd_charge_init(&huge, &holder.account, TDD_QUOTA_BYTES, UINT64_MAX, &fault),
		     TIDL_ERR_QUOTA);
	tdd_charge_deinit(&small);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, one_connection_has_its_own_limit)
{
	struct tt_domain domain;
	struct tdd_holder one, other;
	struct tdd_charge all = {0}, more = {0}, others = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &one, 1);
	tt_holder_init(&domain, &other, 1);
	cr_assert_eq(
		tdd_charge_init(&all, &one.account, TDD_QUOTA_WAITS, TDD_WAITS_PER_SESSION, &fault),
		0);
	cr_expect_eq(tdd_charge_init(&more, &one.account, TDD_QUOTA_WAITS, 1, &fault),
		     TIDL_ERR_QUOTA);
	cr_expect_eq(tdd_charge_init(&others, &other.account, TDD_QUOTA_WAITS, 1, &fault), 0);
	tdd_charge_deinit(&all);
	tdd_charge_deinit(&others);
	tt_holder_end(&domain, &one);
	tt_holder_end(&domain, &other);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, a_refused_move_changes_nothing)
{
	struct tt_domain domain;
	struct tdd_holder poor, rich;
	struct tdd_charge charge = {0}, full = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &poor, 1);
	tt_holder_init(&domain, &rich, 2);
	cr_assert_eq(
		tdd_charge_init(&full, poor.account.parent, TDD_QUOTA_BYTES, TT_UID_BYTES, &fault),
		0);
	cr_assert_eq(tdd_charge_init(&charge, rich.account.parent, TDD_QUOTA_BYTES, TT_UID_BYTES,
				     &fault),
		     0);
	cr_expect_eq(tdd_charge_move(&charge, poor.account.parent, &fault), TIDL_ERR_QUOTA);
	cr_expect_eq(tt_used(&domain, 1, TDD_QUOTA_BYTES), TT_UID_BYTES);
	cr_expect_eq(tt_used(&domain, 2, TDD_QUOTA_BYTES), TT_UID_BYTES);
	/* The memory is there, whoever pays. */
	tdd_charge_force(&charge, poor.account.parent);
	cr_expect_eq(tt_used(&domain, 1, TDD_QUOTA_BYTES), 2 * TT_UID_BYTES);
	cr_expect_eq(tt_used(&domain, 2, TDD_QUOTA_BYTES), 0);
	cr_expect_eq(domain.quota.broker.used[TDD_QUOTA_BYTES], TT_TOTAL_BYTES);
	tdd_charge_deinit(&charge);
	tdd_charge_deinit(&full);
	tt_holder_end(&domain, &poor);
	tt_holder_end(&domain, &rich);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, a_full_broker_can_still_move_a_charge)
{
	struct tt_domain domain;
	struct tdd_holder from, to, rest;
	struct tdd_charge charge = {0}, filler = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &from, 1);
	tt_holder_init(&domain, &to, 2);
	tt_holder_init(&domain, &rest, 3);
	cr_assert_eq(tdd_charge_init(&charge, from.account.parent, TDD_QUOTA_BYTES, TT_UID_BYTES,
				     &fault),
		     0);
	cr_assert_eq(tdd_charge_init(&filler, rest.account.parent, TDD_QUOTA_BYTES, TT_UID_BYTES,
				     &fault),
		     0);
	cr_expect_eq(tdd_charge_move(&charge, to.account.parent, &fault), 0);
	cr_expect_eq(tt_used(&domain, 2, TDD_QUOTA_BYTES), TT_UID_BYTES);
	tdd_charge_deinit(&charge);
	tdd_charge_deinit(&filler);
	tt_holder_end(&domain, &from);
	tt_holder_end(&domain, &to);
	tt_holder_end(&domain, &rest);
	tt_domain_deinit(&domain);
}

TT_TEST(quota, an_account_outlives_its_sessions_while_charged)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_charge charge = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 7);
	cr_assert_eq(tdd_charge_init(&charge, holder.account.parent, TDD_QUOTA_BYTES, 10, &fault),
		     0);
	tt_holder_end(&domain, &holder);
	cr_expect_eq(tt_used(&domain, 7, TDD_QUOTA_BYTES), 10);
	tdd_charge_deinit(&charge);
	cr_expect(domain.quota.uids == NULL);
	tt_domain_deinit(&domain);
}

/* Memory of one uid, sessions of others: somebody who can remove the memory always gets in. */
TT_TEST(quota, memory_leaves_descriptors_for_sessions_and_those_for_admins)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_charge memory = {0};
	struct tdd_charge session = {.claim = TDD_CLAIM_SESSION};
	struct tdd_charge admin = {.claim = TDD_CLAIM_ADMIN};
	struct tdd_charge refused = {0};
	struct tdp_fault fault;

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	domain.quota.kept_descriptors[TDD_ACCOUNT_BROKER][TDD_CLAIM_MEMORY] = 30;
	domain.quota.kept_descriptors[TDD_ACCOUNT_BROKER][TDD_CLAIM_SESSION] = 10;
	cr_expect_eq(tdd_charge_init(&memory, &holder.account, TDD_QUOTA_DESCRIPTORS,
				     TT_DESCRIPTORS - 29, &fault),
		     TIDL_ERR_LIMIT);
	cr_expect(strstr(fault.text, "at most 70 "), "%s", fault.text);
	cr_assert_eq(tdd_charge_init(&memory, &holder.account, TDD_QUOTA_DESCRIPTORS,
				     TT_DESCRIPTORS - 30, &fault),
		     0);
	cr_expect_eq(tdd_charge_init(&session, &holder.account, TDD_QUOTA_DESCRIPTORS, 21, &fault),
		     TIDL_ERR_LIMIT);
	cr_assert_eq(tdd_charge_init(&session, &holder.account, TDD_QUOTA_DESCRIPTORS, 20, &fault),
		     0);
	cr_expect_eq(tdd_charge_init(&refused, &holder.account, TDD_QUOTA_DESCRIPTORS, 1, &fault),
		     TIDL_ERR_LIMIT);
	cr_expect_eq(tdd_charge_init(&admin, &holder.account, TDD_QUOTA_DESCRIPTORS, 11, &fault),
		     TIDL_ERR_LIMIT);
	cr_assert_eq(tdd_charge_init(&admin, &holder.account, TDD_QUOTA_DESCRIPTORS, 10, &fault),
		     0);
	tdd_charge_deinit(&memory);
	tdd_charge_deinit(&session);
	tdd_charge_deinit(&admin);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}
