/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that CUDA knows is not moved under it. With a driver that knows what the test tells it. */
#include <dlfcn.h>
#include <string.h>

#include "client/lib/cuda/driver.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/memory.h"

/* The driver, as a framework would have loaded it. */
struct driver {
	void *library;
	void (*register_range)(void *address, size_t size_bytes);
	void (*fail)(int result);
	size_t (*asked)(void);
};

static void symbol_find(const struct driver *driver, const char *name, void *ret_function)
{
	void *symbol = dlsym(driver->library, name);

	cr_assert_not_null(symbol);
	memcpy(ret_function, &symbol, sizeof(symbol));
}

static void driver_load(struct driver *driver)
{
	driver->library = dlopen(TT_FAKE_CUDA, RTLD_NOW);
	cr_assert_not_null(driver->library, "%s", dlerror());
	symbol_find(driver, "fake_cuda_register", &driver->register_range);
	symbol_find(driver, "fake_cuda_fail", &driver->fail);
	symbol_find(driver, "fake_cuda_asked", &driver->asked);
}

static void expect_refused(struct tt_memory *memory, struct tidl_client *client)
{
	cr_expect_eq(tt_memory_publish(memory, client, "x"), TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_PINNED);
	cr_expect(tt_memory_is_private(memory));
}

static void expect_moved(struct tt_memory *memory, struct tidl_client *client)
{
	cr_assert_eq(tt_memory_publish(memory, client, "x"), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_unshare(client, "x"), 0, "%s", tidl_last_error());
}

TT_TEST(inplace_cuda, what_is_registered_is_refused)
{
	const size_t size_bytes = 64 * TT_PAGE_BYTES;
	struct driver driver;
	struct tt_world world;
	struct tt_memory memory;
	unsigned char *data;

	tt_world_init(&world);
	tt_memory_init(&memory, size_bytes);
	data = (unsigned char *)memory.data;
	driver_load(&driver);
	driver.register_range(data, size_bytes);
	expect_refused(&memory, world.client);
	/* A part of it is enough, wherever that is. */
	for (size_t page = 0; page < 64; page += 21) {
		driver.register_range(data + page * TT_PAGE_BYTES + 100, 16);
		expect_refused(&memory, world.client);
	}
	/* And what lies beside it is not. */
	driver.register_range(data - TT_PAGE_BYTES, TT_PAGE_BYTES);
	expect_moved(&memory, world.client);
	driver.register_range(data + size_bytes, TT_PAGE_BYTES);
	expect_moved(&memory, world.client);
	cr_assert_eq(dlclose(driver.library), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* The pages of the block are moved, not those of the tensor alone. */
TT_TEST(inplace_cuda, so_is_a_tensor_beside_what_is_registered_in_its_block)
{
	struct driver driver;
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 64 * TT_PAGE_BYTES);
	tt_foreign_init(&memory.foreign, memory.data, 1, (const int64_t[]){50}, NULL);
	driver_load(&driver);
	driver.register_range((unsigned char *)memory.data + 32 * TT_PAGE_BYTES, TT_PAGE_BYTES);
	expect_refused(&memory, world.client);
	cr_assert_eq(dlclose(driver.library), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

/* CUDA's own memory is no private memory anyway; the better reason is given. */
TT_TEST(inplace_cuda, pinned_is_the_first_of_reasons)
{
	struct driver driver;
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 64 * TT_PAGE_BYTES);
	memory.options.block_count = 0; /* no block of malloc's */
	driver_load(&driver);
	driver.register_range(memory.data, memory.bytes);
	expect_refused(&memory, world.client);
	cr_assert_eq(dlclose(driver.library), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace_cuda, a_driver_without_an_answer_is_asked_once)
{
	struct driver driver;
	struct tt_world world;
	struct tt_memory memory;
	size_t asked;

	tt_world_init(&world);
	tt_memory_init(&memory, 64 * TT_PAGE_BYTES);
	driver_load(&driver);
	driver.fail(3); /* CUDA_ERROR_NOT_INITIALIZED */
	asked = driver.asked();
	expect_moved(&memory, world.client);
	cr_expect_eq(driver.asked() - asked, 1);
	cr_assert_eq(dlclose(driver.library), 0);
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}

TT_TEST(inplace_cuda, the_driver_is_never_loaded)
{
	struct tt_world world;
	struct tt_memory memory;

	tt_world_init(&world);
	tt_memory_init(&memory, 64 * TT_PAGE_BYTES);
	expect_moved(&memory, world.client);
	cr_expect_not(tdc_cuda_knows((uintptr_t)memory.data, (uintptr_t)memory.data + 1));
	cr_expect_null(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
	tt_memory_deinit(&memory);
	tt_world_deinit(&world);
}
