/* SPDX-License-Identifier: Apache-2.0 */
/* Long lists of leases: where to go on, whichever of them have gone meanwhile. */
#include <stdlib.h>

#include "daemon/limits.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

enum { LEASES = 5 * TDD_LEASES_PER_MILESTONE + 7 };

/* From every place of the list on, what comes behind it is found by a short walk. */
static void expect_short_walks(const struct tdd_publication *publication)
{
	const struct tdd_hold *lease, *last = NULL;

	DL_FOREACH (publication->leases, lease) {
		const struct tdd_hold *at =
			tdd_milestones_find(&publication->milestones, lease->serial);
		int passed = 0;

		for (at = at ? at : publication->leases; at != lease; at = at->next) {
			cr_assert(at, "it begins behind what is looked for");
			cr_assert_lt(++passed, TDD_LEASES_PER_MILESTONE);
		}
		cr_expect(!last || last->serial < lease->serial);
		last = lease;
	}
}

TT_TEST(milestones, any_may_go)
{
	struct tt_domain domain;
	struct tdd_holder holder;
	struct tdd_publication *publication;
	static struct tdd_hold *leases[LEASES];

	tt_domain_init(&domain);
	tt_holder_init(&domain, &holder, 1);
	publication = tt_publish(&domain, &holder, "x", NULL);
	for (int i = 0; i < LEASES; i++)
		leases[i] = tt_lease(&domain, &holder, publication, TIDL_ATTACH_READ);
	cr_expect_eq(publication->milestones.count, 5);
	cr_expect_null(tdd_milestones_find(&publication->milestones, 1));
	expect_short_walks(publication);
	/* The milestones themselves first, then the others in no order. */
	for (int i = TDD_LEASES_PER_MILESTONE - 1; i < LEASES; i += TDD_LEASES_PER_MILESTONE)
		leases[i] = tdd_hold_free(leases[i]);
	expect_short_walks(publication);
	srand(3);
	for (int n = 0; n < LEASES; n++) {
		int i = rand() % LEASES;

		leases[i] = tdd_hold_free(leases[i]);
		if (n % 512 == 0)
			expect_short_walks(publication);
	}
	for (int i = 0; i < LEASES; i++)
		tdd_hold_free(leases[i]);
	cr_expect_null(publication->milestones.items);
	tt_holder_end(&domain, &holder);
	tt_domain_deinit(&domain);
}
