/* SPDX-License-Identifier: Apache-2.0 */
/* What PUBLISH takes, and every reason to refuse it. */
#include "daemon/registry.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/daemon/served.h"

TestSuite(publish, .init = tt_open_first_loop);

/* Two pages of data, so that a small tensor exposes more than itself. */
enum { DATA_PAGES = 2 };

struct refusal {
	const char *what;
	int code;
	void (*change)(struct tt_publish *publish);
};

static void bad_name(struct tt_publish *p)
{
	p->message.publish.name = "../x";
}
static void taken_name(struct tt_publish *p)
{
	p->message.publish.name = "taken";
}
static void bad_segment(struct tt_publish *p)
{
	p->segment.id = 999;
}
static void device_segment(struct tt_publish *p)
{
	p->segment.kind = TDP_SEGMENT_DEVICE_HANDLE;
}
static void no_segment(struct tt_publish *p)
{
	p->message.publish.segment_count = 0;
	p->tensor.segment_index = -1;
}
static void unused_segment(struct tt_publish *p)
{
	p->shape[0] = 0;
	p->tensor.segment_index = -1;
}
static void segment_for_nothing(struct tt_publish *p)
{
	p->shape[0] = 0;
}
static void segment_index_beyond(struct tt_publish *p)
{
	p->tensor.segment_index = 1;
}
static void too_large(struct tt_publish *p)
{
	p->shape[0] = 20000;
}
static void overflowing(struct tt_publish *p)
{
	p->shape[0] = INT64_MAX;
	p->shape[1] = INT64_MAX;
}
static void negative_extent(struct tt_publish *p)
{
	p->shape[0] = -1;
}
static void before_the_start(struct tt_publish *p)
{
	p->strides[0] = -4;
}
static void in_the_control_page(struct tt_publish *p)
{
	p->tensor.byte_offset = DATA_PAGES * tdp_page_bytes();
}
static void offset_overflowing(struct tt_publish *p)
{
	p->tensor.byte_offset = UINT64_MAX;
}
static void bad_dtype(struct tt_publish *p)
{
	p->tensor.dtype.bits = 31;
}
static void no_lanes(struct tt_publish *p)
{
	p->tensor.dtype.lanes = 0;
}
static void executable_mode(struct tt_publish *p)
{
	p->message.publish.mode = 0755;
}
static void exposing(struct tt_publish *p)
{
	p->message.publish.mode = 0644;
	p->shape[0] = 1;
}
static void metadata_array(struct tt_publish *p)
{
	p->message.publish.metadata = "[1]";
}
static void metadata_broken(struct tt_publish *p)
{
	p->message.publish.metadata = "{\"a\":";
}
static void metadata_trailing(struct tt_publish *p)
{
	p->message.publish.metadata = "{} {}";
}
static void immutable(struct tt_publish *p)
{
	p->message.publish.access = TIDL_ACCESS_IMMUTABLE;
}
static void seconds(struct tt_publish *p)
{
	p->message.publish.retention = TIDL_RETENTION_SECONDS;
}
static void until_idle(struct tt_publish *p)
{
	p->message.publish.retention = TIDL_RETENTION_UNTIL_IDLE;
}
static void history(struct tt_publish *p)
{
	p->message.publish.keep = TDP_KEEP_MAX + 1;
}
static void keyed(struct tt_publish *p)
{
	p->tensor.key = "weight";
}
static void no_tensor(struct tt_publish *p)
{
	p->message.publish.tensor_count = 0;
}

static const struct refusal refusals[] = {
	{"bad name", TIDL_ERR_NAME_INVALID, bad_name},
	{"taken name", TIDL_ERR_EXISTS, taken_name},
	{"unknown segment", TIDL_ERR_PERMISSION, bad_segment},
	{"device memory", TIDL_ERR_UNSUPPORTED, device_segment},
	{"elements without memory", TIDL_ERR_LAYOUT, no_segment},
	{"memory without tensor", TIDL_ERR_LAYOUT, unused_segment},
	{"memory for no elements", TIDL_ERR_LAYOUT, segment_for_nothing},
	{"segment index", TIDL_ERR_LAYOUT, segment_index_beyond},
	{"shape beyond the segment", TIDL_ERR_LAYOUT, too_large},
	{"overflowing shape", TIDL_ERR_LAYOUT, overflowing},
	{"negative extent", TIDL_ERR_LAYOUT, negative_extent},
	{"negative stride before the start", TIDL_ERR_LAYOUT, before_the_start},
	{"offset in the control page", TIDL_ERR_LAYOUT, in_the_control_page},
	{"overflowing offset", TIDL_ERR_LAYOUT, offset_overflowing},
	{"unknown dtype", TIDL_ERR_DTYPE, bad_dtype},
	{"no lanes", TIDL_ERR_DTYPE, no_lanes},
	{"mode", TIDL_ERR_INVALID_ARGUMENT, executable_mode},
	{"exposure", TIDL_ERR_COPY_NEEDED, exposing},
	{"metadata that is no object", TIDL_ERR_METADATA, metadata_array},
	{"metadata that is no JSON", TIDL_ERR_METADATA, metadata_broken},
	{"metadata with something behind it", TIDL_ERR_METADATA, metadata_trailing},
	{"immutable, not sealed", TIDL_ERR_ACCESS, immutable},
	{"retention in no seconds", TIDL_ERR_INVALID_ARGUMENT, seconds},
	{"retention until idle", TIDL_ERR_INVALID_ARGUMENT, until_idle},
	{"too long a history", TIDL_ERR_LIMIT, history},
	{"a key", TIDL_ERR_INVALID_ARGUMENT, keyed},
	{"no tensor", TIDL_ERR_INVALID_ARGUMENT, no_tensor},
};

TT_TEST(publish, a_refused_publish_leaves_no_trace)
{
	struct tdd_server *server = tt_server_new(false);
	struct tdd_account *account = tdd_quota_ref_uid(&server->quota, geteuid());
	struct tt_client client;
	struct tt_publish publish;
	uint64_t segment_id, bytes;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, DATA_PAGES * tdp_page_bytes());
	cr_assert_eq(tt_call_publish(server, &client, "taken", segment_id), 0);
	bytes = account->used[TDD_QUOTA_BYTES];
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		tt_publish_init(&publish, "x", segment_id);
		refusals[i].change(&publish);
		cr_expect_eq(tt_call(server, &client, publish.message), refusals[i].code,
			     "%s: %s %s", refusals[i].what,
			     tdp_error_name(client.reply.failure.code),
			     client.reply.failure.message);
		cr_expect_eq(tdd_registry_count(&server->registry), 1);
		cr_expect_eq(HASH_COUNT(server->registry.names), 1);
		cr_expect_eq(account->used[TDD_QUOTA_BYTES], bytes);
	}
	tt_publish_init(&publish, "x", segment_id);
	cr_expect_eq(tt_call(server, &client, publish.message), 0);
	tt_disconnect(&client);
	tdd_account_unref(account);
	tdd_server_free(server);
}

TT_TEST(publish, odd_layouts_are_fine)
{
	static const struct {
		int64_t shape[2], strides[2];
		uint64_t byte_offset;
		uint32_t ndim;
	} cases[] = {
		{{8, 4}, {-4, 1}, 7 * 16, 2}, {{8, 4}, {0, 0}, 0, 2}, {{4, 8}, {1, 4}, 0, 2},
		{{1, 1}, {99999, -7}, 0, 2},  {{0, 0}, {0, 0}, 4, 0}, {{3, 0}, {2, 0}, 5, 1},
	};
	struct tdd_server *server = tt_server_new(false);
	struct tt_client client;
	uint64_t segment_id;

	tt_join(server, &client);
	segment_id = tt_call_allocate(server, &client, 128);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tt_publish publish;

		tt_publish_init(&publish, "x", segment_id);
		memcpy(publish.shape, cases[i].shape, sizeof(cases[i].shape));
		memcpy(publish.strides, cases[i].strides, sizeof(cases[i].strides));
		publish.tensor.byte_offset = cases[i].byte_offset;
		publish.tensor.ndim = cases[i].ndim;
		publish.message.publish.replace = true;
		cr_expect_eq(tt_call(server, &client, publish.message), 0, "case %zu: %s", i,
			     client.reply.failure.message);
		cr_assert_eq(tt_call(server, &client, tt_get("x", TIDL_ATTACH_READ)), 0);
		cr_expect_eq(client.reply.granted.tensors[0].ndim, cases[i].ndim);
		for (uint32_t d = 0; d < cases[i].ndim; d++)
			cr_expect_eq(client.reply.granted.tensors[0].strides[d],
				     cases[i].strides[d]);
	}
	tt_disconnect(&client);
	tdd_server_free(server);
}

TT_TEST(publish, replacing_says_what_it_replaced)
{
	struct tdd_server *server = tt_server_new(true);
	struct tt_client client;
	struct tt_publish publish;
	uint64_t first, second;

	tt_join(server, &client);
	first = tt_call_allocate(server, &client, 128);
	second = tt_call_allocate(server, &client, 128);
	cr_assert_eq(tt_call_publish(server, &client, "x", first), 0);
	cr_expect_eq(client.reply.published.retention, TIDL_RETENTION_UNTIL_IDLE);
	tt_publish_init(&publish, "x", second);
	publish.message.publish.replace = true;
	cr_assert_eq(tt_call(server, &client, publish.message), 0);
	cr_expect_eq(client.reply.published.replaced_generation, 1);
	cr_expect_not(client.reply.published.aliases_previous);
	publish.shape[0] = 2;
	cr_assert_eq(tt_call(server, &client, publish.message), 0);
	cr_expect_eq(client.reply.published.replaced_generation, 2);
	cr_expect(client.reply.published.aliases_previous);
	tt_disconnect(&client);
	tdd_server_free(server);
}
