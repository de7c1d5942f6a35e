/* SPDX-License-Identifier: Apache-2.0 */
/* Bundles without sockets: who keeps which of their segments, and who pays. */
#include "daemon/manifest.h"
#include "daemon/selection.h"
#include "proto/mem/memfd.h"
#include "proto/mem/sealed.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/domain.h"

enum { CREATOR = 1, READER = 2, OTHER = 3, SEGMENTS = 3 };

static const int64_t shape[] = {4};
static const int64_t strides[] = {1};

static const struct tdp_tensor tensors[] = {
	{"a/x", 0, 0, {1, 8, 1}, 1, shape, strides, 0},
	{"a/y", 1, 0, {1, 8, 1}, 1, shape, strides, 0},
	{"b", 2, 0, {1, 8, 1}, 1, shape, strides, 0},
};

struct world {
	struct tt_domain domain;
	struct tdd_holder creator;
	struct tdd_holder reader;
	struct tdd_segment *segments[SEGMENTS];
	struct tdd_publication *publication;
};

/* Published and given up by its creator; the lists in a manifest or not. */
static void world_init(struct world *world, struct tdd_manifest *manifest)
{
	struct tdd_publication_spec spec = {
		.name = "bundle",
		.rights = {.owner_uid = CREATOR, .mode = 0600},
		.access = TIDL_ACCESS_SHARED,
		.retention = TIDL_RETENTION_PERSIST,
		.timeline = &world->domain.registry.timeline,
		.path = TIDL_PATH_ALLOCATED,
		.segment_count = SEGMENTS,
		.segments = world->segments,
		.is_bundle = true,
		.tensor_count = TDP_ARRAY_LENGTH(tensors),
		.tensors = tensors,
		.manifest = manifest,
	};
	struct tdd_name *entry;
	struct tdp_fault fault;

	tt_domain_init(&world->domain);
	tt_holder_init(&world->domain, &world->creator, CREATOR);
	tt_holder_init(&world->domain, &world->reader, READER);
	for (int i = 0; i < SEGMENTS; i++)
		world->segments[i] = tt_allocate(&world->domain, &world->creator, 100);
	cr_assert_eq(tdd_registry_claim(&world->domain.registry, CREATOR, "bundle", &entry, &fault),
		     0);
	cr_assert_eq(tdd_publication_new(&spec, &world->creator, &world->publication, &fault), 0,
		     "%s", fault.text);
	tdd_registry_list(&world->domain.registry, entry, world->publication, 1);
	for (int i = 0; i < SEGMENTS; i++)
		tdd_hold_free(tdd_allocation_find(&world->creator, world->segments[i]->id));
}

static void world_deinit(struct world *world)
{
	tt_holder_end(&world->domain, &world->reader);
	tt_holder_end(&world->domain, &world->creator);
	tt_domain_deinit(&world->domain);
}

static struct tdd_hold *lease_part(struct world *world, const uint32_t *numbers, size_t count,
				   enum tidl_attach attach)
{
	struct tdd_lease_spec spec = {
		.attach = attach,
		.serial = ++world->domain.registry.last_hold_serial,
		.is_partial = true,
		.segment_count = count,
		.segment_numbers = numbers,
	};
	struct tdd_hold *lease;
	struct tdp_fault fault;

	cr_assert_eq(tdd_lease_new(&world->reader, world->publication, &spec, &lease, &fault), 0,
		     "%s", fault.text);
	return lease;
}

TT_TEST(bundle_domain, rows_and_segments_are_charged)
{
	struct world world;
	struct tt_domain *domain = &world.domain;

	world_init(&world, NULL);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_TENSORS), 3);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS);
	tt_lease(domain, &world.reader, world.publication, TIDL_ATTACH_READ);
	cr_expect_eq(tt_used(domain, READER, TDD_QUOTA_HOLDS), SEGMENTS);
	tdd_registry_unlist(&domain->registry, world.publication);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_TENSORS), 0);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_BYTES), 0);
	cr_expect_eq(tt_used(domain, READER, TDD_QUOTA_TENSORS), 3);
	cr_expect_eq(tt_used(domain, READER, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS);
	world_deinit(&world);
}

TT_TEST(bundle_domain, a_quota_of_tensors)
{
	struct tdd_publication_spec spec = {.name = "late",
					    .rights = {.owner_uid = CREATOR, .mode = 0600},
					    .access = TIDL_ACCESS_SHARED,
					    .is_bundle = true,
					    .tensor_count = TDP_ARRAY_LENGTH(tensors),
					    .tensors = tensors};
	struct world world;
	struct tdd_publication *publication;
	struct tdp_fault fault;
	uint64_t bytes;

	world_init(&world, NULL);
	bytes = tt_used(&world.domain, CREATOR, TDD_QUOTA_BYTES);
	world.domain.quota.limits[TDD_ACCOUNT_UID][TDD_QUOTA_TENSORS] = 5;
	cr_expect_eq(tdd_publication_new(&spec, &world.creator, &publication, &fault),
		     TIDL_ERR_QUOTA);
	cr_expect(strstr(fault.text, "published tensors"));
	cr_expect_eq(tt_used(&world.domain, CREATOR, TDD_QUOTA_TENSORS), 3);
	cr_expect_eq(tt_used(&world.domain, CREATOR, TDD_QUOTA_BYTES), bytes);
	world_deinit(&world);
}

/* The whole generation lives on, and who holds a part of it pays for all. */
TT_TEST(bundle_domain, a_lease_on_a_part)
{
	static const uint32_t middle[] = {1};
	struct world world;
	struct tt_domain *domain = &world.domain;
	struct tdd_hold *lease;

	world_init(&world, NULL);
	lease = lease_part(&world, middle, 1, TIDL_ATTACH_WRITE);
	cr_expect_eq(tdd_hold_segment(lease, 0), world.segments[1]);
	cr_expect_eq(tdd_hold_find_segment(lease, world.segments[1]->id), world.segments[1]);
	cr_expect(!tdd_hold_find_segment(lease, world.segments[0]->id));
	cr_expect(tdd_holder_has_segment(&world.reader, world.segments[1]));
	cr_expect_not(tdd_holder_has_segment(&world.reader, world.segments[0]));
	cr_expect_eq(tdd_segment_other_writer(world.segments[1], &world.creator), &world.reader);
	cr_expect(!tdd_segment_other_writer(world.segments[0], &world.creator));
	tdd_registry_unlist(&domain->registry, world.publication);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_BYTES), 0);
	cr_expect_eq(tt_used(domain, READER, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS);
	for (int i = 0; i < SEGMENTS; i++)
		cr_expect(tdd_segment_find(domain->registry.segments, world.segments[i]->id));
	tdd_hold_free(lease);
	cr_expect(!domain->registry.segments);
	world_deinit(&world);
}

TT_TEST(bundle_domain, a_lease_on_nothing_but_the_rows)
{
	struct world world;
	struct tdd_hold *lease;

	world_init(&world, NULL);
	lease = lease_part(&world, NULL, 0, TIDL_ATTACH_READ);
	cr_expect_eq(tt_used(&world.domain, READER, TDD_QUOTA_HOLDS), 1);
	tdd_registry_unlist(&world.domain.registry, world.publication);
	cr_expect_eq(tt_used(&world.domain, READER, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS);
	tdd_hold_free(lease);
	cr_expect(!world.domain.registry.segments);
	world_deinit(&world);
}

static struct tdd_manifest *manifest_new(void)
{
	struct tdp_manifest counts = {.tensor_count = TDP_ARRAY_LENGTH(tensors),
				      .tensors = tensors};
	size_t size_bytes = tdp_manifest_packed_bytes(&counts);
	struct tdp_manifest_reader reader;
	struct tdp_manifest_row row;
	struct tdd_manifest *manifest;
	struct tdp_fault fault;
	unsigned char bytes[512];
	int fd;

	cr_assert_leq(size_bytes, sizeof(bytes));
	tdp_manifest_pack(&counts, bytes);
	cr_assert_eq(tdp_sealed_create("x", bytes, size_bytes, &fd, &fault), 0);
	cr_assert_eq(tdd_manifest_new(fd, size_bytes, &counts, &manifest), 0);
	tdp_manifest_reader_init(&reader, bytes, size_bytes);
	for (size_t i = 0; i < counts.tensor_count; i++) {
		cr_assert_eq(tdp_manifest_next(&reader, &row, &fault), 0);
		manifest->row_offsets[i] = (uint32_t)row.offset_bytes;
		manifest->row_offsets[i + 1] = (uint32_t)row.end_bytes;
	}
	return manifest;
}

TT_TEST(bundle_domain, a_manifest_is_charged_and_goes_with_its_publication)
{
	struct world world;
	struct tt_domain *domain = &world.domain;
	struct tdp_manifest_row rows[2];
	struct tdp_fault fault;
	uint64_t bytes;

	world_init(&world, manifest_new());
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS + 1);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_TENSORS), 3);
	bytes = tt_used(domain, CREATOR, TDD_QUOTA_BYTES);
	cr_expect_geq(bytes, world.publication->segment_bytes + tdp_page_bytes());
	cr_assert_eq(tdd_manifest_read_rows(world.publication->manifest, 1, 2, rows, &fault), 0);
	cr_expect_str_eq(rows[0].tensor.key, "a/y");
	cr_expect_str_eq(rows[1].tensor.key, "b");
	cr_assert_eq(tdd_manifest_read_rows(world.publication->manifest, 3, 0, rows, &fault), 0);
	tt_lease(domain, &world.reader, world.publication, TIDL_ATTACH_READ);
	tdd_registry_unlist(&domain->registry, world.publication);
	cr_expect_eq(tt_used(domain, CREATOR, TDD_QUOTA_DESCRIPTORS), 0);
	cr_expect_eq(tt_used(domain, READER, TDD_QUOTA_DESCRIPTORS), 2 * SEGMENTS + 1);
	world_deinit(&world);
}

static int select_keys(const struct tdd_publication *publication, const char *const *keys,
		       size_t count, struct tdp_arena *arena, struct tdd_selection *selection)
{
	struct tdd_wanted_keys wanted = {.count = count, .keys = keys};
	struct tdp_fault fault;

	tdp_arena_init(arena, TDD_SELECTION_MAX_BYTES);
	return tdd_select(publication, &wanted, arena, selection, &fault);
}

TT_TEST(bundle_domain, selections)
{
	static const char *const part[] = {"b", "a/y"}, *const all[] = {"a", "b"};
	static const char *const missing[] = {"b", "c"}, *const bad[] = {"a//b"};
	struct tdd_manifest *manifests[] = {NULL, manifest_new()};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(manifests); i++) {
		struct world world;
		struct tdd_selection selection;
		tdp_auto_arena first, second, third, fourth, fifth;

		world_init(&world, manifests[i]);
		cr_assert_eq(select_keys(world.publication, NULL, 0, &first, &selection), 0);
		cr_expect_not(selection.is_partial);
		cr_expect_eq(selection.tensor_count, i == 0 ? 3 : 0);
		cr_assert_eq(select_keys(world.publication, part, 2, &second, &selection), 0);
		cr_expect(selection.is_partial);
		cr_expect_eq(selection.segment_count, 2);
		cr_expect_eq(selection.segment_numbers[0], 1);
		cr_expect_eq(selection.segment_numbers[1], 2);
		if (i == 0) {
			cr_expect_str_eq(selection.tensors[0].key, "a/y");
			cr_expect_eq(selection.tensors[1].segment_index, 1);
		}
		cr_assert_eq(select_keys(world.publication, all, 2, &third, &selection), 0);
		cr_expect_not(selection.is_partial);
		cr_expect_eq(select_keys(world.publication, missing, 2, &fourth, &selection),
			     TIDL_ERR_NOT_FOUND);
		cr_expect_eq(select_keys(world.publication, bad, 1, &fifth, &selection),
			     TIDL_ERR_INVALID_ARGUMENT);
		world_deinit(&world);
	}
}
