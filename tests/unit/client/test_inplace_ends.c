/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that was shared where it lay, and whatever is in the way of its end: a broker that has
 * died, other threads, limits of the process. */
#include <string.h>

#include "client/lib/inplace/uses.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

TT_TEST(inplace_ends, unshare_needs_no_broker)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tidl_tensor *tensor;
	float *theirs;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	tensor = tt_get(world.other, "x", TIDL_ATTACH_WRITE);
	theirs = tidl_tensor_data(tensor);
	tt_broker_kill(&world.broker);
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_BROKER_GONE, "%s",
		     tidl_last_error());
	cr_expect_not_null(strstr(tidl_last_error(), "private again"), "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	theirs[7] = -7;
	tt_memory_expect_intact(&memory);
	/* There is nothing left to do. */
	cr_expect_eq(tidl_unshare(world.client, "x"), TIDL_ERR_NOT_FOUND);
	tidl_tensor_unref(tensor);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* Between the check and the end another thread has given the memory another name. */
TT_TEST(inplace_ends, memory_that_got_another_name_is_no_success)
{
	struct tt_world world;
	struct tt_memory memory;
	struct tt_memory view;
	struct tdp_fault fault;

	tt_world_init(&world);
	tt_memory_init(&memory, 16 * TT_PAGE_BYTES);
	cr_assert_eq(tt_memory_publish(&memory, world.client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tdc_unshare_check(world.client, "x", &fault), 0);
	cr_assert_eq(tidl_remove(world.client, "x"), 0);
	view = memory;
	tt_foreign_init(&view.foreign, memory.data + 100, 1, (const int64_t[]){50}, NULL);
	view.options = (struct tidl_publish_options){.size = sizeof(view.options)};
	cr_assert_eq(tt_memory_publish(&view, world.client, "view"), 0, "%s", tidl_last_error());
	cr_expect_eq(tdc_unshare(world.client, "x", &fault), TIDL_ERR_BUSY);
	cr_expect_not_null(strstr(fault.text, "'view'"), "%s", fault.text);
	cr_expect_eq(memory.foreign.deleted, 0);
	cr_assert_eq(tidl_unshare(world.client, "view"), 0, "%s", tidl_last_error());
	cr_expect_eq(memory.foreign.deleted, 1);
	cr_expect(tt_memory_is_private(&memory));
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}
