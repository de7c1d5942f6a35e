/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor's pages at an address of the caller's. */
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/tensor.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

#define PAGE_COUNT    ((size_t)3)
#define PAGE_ELEMENTS ((size_t)1024)

static const int64_t shape[] = {PAGE_COUNT, PAGE_ELEMENTS};

struct world {
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor; /* PAGE_COUNT pages that count */
	float *own;		    /* one page more, private */
	size_t own_bytes;
};

static void world_init(struct world *world)
{
	tt_broker_start(&world->broker);
	world->client = tt_broker_connect(&world->broker);
	world->tensor = tt_tensor_counting(world->client, 2, shape);
	world->own_bytes = (PAGE_COUNT + 1) * (size_t)tdp_page_bytes();
	world->own = mmap(NULL, world->own_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(world->own, MAP_FAILED);
}

static void world_deinit(struct world *world)
{
	munmap(world->own, world->own_bytes);
	tidl_tensor_unref(world->tensor);
	tidl_disconnect(world->client);
	tt_broker_stop(&world->broker);
}

TT_TEST(map_at, the_same_memory_under_the_pointer_that_is_there)
{
	struct world world;
	float *data;

	world_init(&world);
	data = tidl_tensor_data(world.tensor);
	world.own[PAGE_COUNT * PAGE_ELEMENTS] = 7;
	cr_assert_eq(tidl_tensor_map_at(world.tensor, world.own, PAGE_COUNT * tdp_page_bytes()), 0,
		     "%s", tidl_last_error());
	for (size_t i = 0; i < PAGE_COUNT * PAGE_ELEMENTS; i++)
		cr_assert_eq(world.own[i], (float)i);
	world.own[5] = 50;
	data[6] = 60;
	cr_expect_eq(data[5], 50);
	cr_expect_eq(world.own[6], 60);
	cr_expect_eq(world.own[PAGE_COUNT * PAGE_ELEMENTS], 7);
	world_deinit(&world);
}

TT_TEST(map_at, the_pages_outlive_the_tensor)
{
	struct world world;

	world_init(&world);
	cr_assert_eq(tidl_tensor_map_at(world.tensor, world.own, tdp_page_bytes()), 0);
	world.tensor = tidl_tensor_unref(world.tensor);
	cr_expect_eq(world.own[9], 9);
	world_deinit(&world);
}

TT_TEST(map_at, from_the_page_of_the_first_element_on)
{
	struct world world;
	struct tidl_tensor *part;
	struct tdc_tensor_spec spec = {.ndim = 1, .shape = (const int64_t[]){10}, .nbytes = 40};
	struct tdp_fault fault;

	world_init(&world);
	spec.dtype = tidl_tensor_dtype(world.tensor);
	cr_assert_eq(tdc_tensor_new(world.tensor->origin, &spec, &part, &fault), 0);
	tdc_tensor_place(part, world.tensor->segment, tdp_page_bytes() + 8);
	cr_assert_eq(tidl_tensor_map_at(part, world.own, tdp_page_bytes()), 0);
	cr_expect_eq(world.own[2], 1024 + 2);
	cr_expect_eq(tidl_tensor_map_at(part, world.own, PAGE_COUNT * tdp_page_bytes()),
		     TIDL_ERR_INVALID_ARGUMENT, "the page behind the data is the steps'");
	tidl_tensor_unref(part);
	world_deinit(&world);
}

static int write_in_child(float *address)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		(void)signal(SIGSEGV, SIG_DFL); /* AddressSanitizer has a handler */
		*address = 1;
		_exit(0);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TT_TEST(map_at, as_it_is_attached)
{
	struct tidl_publish_options immutable = {.size = sizeof(immutable),
						 .access = TIDL_ACCESS_IMMUTABLE};
	struct world world;
	struct tidl_tensor *reader;
	struct tidl_tensor *private;

	world_init(&world);
	tt_publish(world.client, "x", world.tensor, NULL, NULL);
	reader = tt_get(world.client, "x", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_tensor_map_at(reader, world.own, tdp_page_bytes()), 0);
	cr_expect_eq(world.own[9], 9);
	cr_expect_eq(write_in_child(world.own), SIGSEGV);
	tidl_tensor_unref(reader);
	cr_assert_eq(tidl_remove(world.client, "x"), 0);
	tidl_tensor_unref(world.tensor);

	world.tensor = tt_tensor_counting(world.client, 2, shape);
	tt_publish(world.client, "y", world.tensor, &immutable, NULL);
	reader = tt_get(world.client, "y", TIDL_ATTACH_READ);
	cr_assert_eq(tidl_tensor_copy_on_write(reader, &private), 0);
	cr_assert_eq(tidl_tensor_map_at(private, world.own, tdp_page_bytes()), 0);
	world.own[9] = 90;
	cr_expect_eq(((float *)tidl_tensor_data(reader))[9], 9);
	cr_expect_eq(((float *)tidl_tensor_data(private))[9], 9);
	tidl_tensor_unref(private);
	tidl_tensor_unref(reader);
	world_deinit(&world);
}

TT_TEST(map_at, live_memory_takes_its_maps_before)
{
	struct tidl_publish_options live = {.size = sizeof(live), .access = TIDL_ACCESS_LIVE};
	struct world world;

	world_init(&world);
	cr_assert_eq(tidl_tensor_map_at(world.tensor, world.own, tdp_page_bytes()), 0);
	tt_publish(world.client, "x", world.tensor, &live, NULL);
	world.own[1] = 11;
	cr_expect_eq(((float *)tidl_tensor_data(world.tensor))[1], 11);
	world.own[1024] = 3;
	cr_expect_eq(tidl_tensor_map_at(world.tensor, world.own, 2 * tdp_page_bytes()),
		     TIDL_ERR_ACCESS);
	/* Whatever the kernel has left there, it is mapped. */
	world.own[1024] = 4;
	cr_expect_eq(world.own[1024], 4);
	world_deinit(&world);
}

TT_TEST(map_at, refusals)
{
	static const int64_t none[] = {0};
	struct world world;
	struct tidl_tensor *empty;
	size_t page = tdp_page_bytes();

	world_init(&world);
	cr_expect_eq(tidl_tensor_map_at(NULL, world.own, page), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_tensor_map_at(world.tensor, NULL, page), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_tensor_map_at(world.tensor, world.own + 1, page),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_tensor_map_at(world.tensor, world.own, page - 1),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_tensor_map_at(world.tensor, world.own, 0), TIDL_ERR_INVALID_ARGUMENT);
	cr_expect_eq(tidl_tensor_map_at(world.tensor, world.own, (PAGE_COUNT + 1) * page),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_empty(world.client, 1, none, tt_float32, &empty), 0);
	cr_expect_eq(tidl_tensor_map_at(empty, world.own, page), TIDL_ERR_INVALID_ARGUMENT);
	tidl_tensor_unref(empty);
	cr_expect_eq(world.own[0], 0);
	world_deinit(&world);
}

static int map_in_child(struct world *world)
{
	return tidl_tensor_map_at(world->tensor, world->own, tdp_page_bytes()) == TIDL_ERR_RELEASED
		       ? 0
		       : 1;
}

TT_TEST(map_at, a_forked_child_has_no_lease)
{
	struct world world;
	int status;
	pid_t pid;

	world_init(&world);
	pid = fork();
	if (pid == 0)
		_exit(map_in_child(&world));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	world_deinit(&world);
}
