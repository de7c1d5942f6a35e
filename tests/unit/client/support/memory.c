/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/client/support/memory.h"

#include <sys/mman.h>

#include <criterion/criterion.h>

#include "client/lib/inplace/maps.h"

static void memory_fill(struct tt_memory *memory)
{
	for (size_t i = 0; i < memory->bytes / TT_ELEMENT_BYTES; i++)
		memory->data[i] = (float)i;
}

void tt_memory_init_over(struct tt_memory *memory, void *data, size_t bytes)
{
	int64_t shape[] = {(int64_t)(bytes / TT_ELEMENT_BYTES)};

	memory->data = data;
	memory->bytes = bytes;
	memory_fill(memory);
	tt_foreign_init(&memory->foreign, data, 1, shape, NULL);
	memory->block =
		(struct tidl_block){.address = data, .bytes = bytes, .kind = TIDL_BLOCK_PAGES};
	memory->options = (struct tidl_publish_options){
		.size = sizeof(memory->options),
		.copy = TIDL_COPY_NEVER,
		.block_count = 1,
		.blocks = &memory->block,
	};
	memory->publication = (struct tidl_publication){.size = sizeof(memory->publication)};
}

void tt_memory_init(struct tt_memory *memory, size_t bytes)
{
	void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(data, MAP_FAILED);
	tt_memory_init_over(memory, data, bytes);
}

void tt_memory_deinit(struct tt_memory *memory)
{
	cr_assert_eq(munmap(memory->data, memory->bytes), 0);
}

int tt_memory_publish(struct tt_memory *memory, struct tidl_client *client, const char *name)
{
	return tidl_publish(client, name, &memory->foreign.managed, &memory->options,
			    &memory->publication);
}

void tt_memory_expect_intact(const struct tt_memory *memory)
{
	for (size_t i = 0; i < memory->bytes / TT_ELEMENT_BYTES; i++)
		cr_assert_eq(memory->data[i], (float)i, "element %zu", i);
}

bool tt_memory_is_private(const struct tt_memory *memory)
{
	uintptr_t begin = (uintptr_t)memory->data;
	struct tdp_fault fault;
	struct tdc_maps maps;
	enum tidl_copy_reason reason;

	cr_assert_eq(tdc_maps_load(&maps, &fault), 0);
	reason = tdc_maps_refusal(&maps, begin, begin + memory->bytes);
	tdc_maps_deinit(&maps);
	return reason == TIDL_COPY_REASON_NONE;
}

void tt_world_init(struct tt_world *world)
{
	tt_broker_start(&world->broker);
	world->client = tt_broker_connect(&world->broker);
	world->other = tt_broker_connect(&world->broker);
}

void tt_world_deinit(struct tt_world *world)
{
	tidl_disconnect(world->other);
	tidl_disconnect(world->client);
	tt_broker_stop(&world->broker);
}
