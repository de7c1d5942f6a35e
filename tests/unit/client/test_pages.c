/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are replaced while somebody asks for one page after the other. */
#include <string.h>
#include <unistd.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/fake_broker.h"
#include "tests/unit/client/support/foreign.h"

struct pages {
	int gone_limit; /* how often a second page finds its generation gone */
	int gone_count;
	int listing_count;
	struct tdp_publish published; /* numbers only */
};

static bool send_listing(struct pages *pages, int fd, const struct tdp_message *request)
{
	static const int64_t shape[] = {3};
	static const struct {
		const char *name;
		uint32_t owner_uid;
	} rows[] = {{"a", 0}, {"b", 0}, {"a", 1}, {"b", 0}, {"c", 0}, {"b", 0}};
	enum { PAGE_ROWS = 3 };
	struct tdp_list_entry entries[PAGE_ROWS];
	bool is_first = pages->listing_count++ == 0;
	struct tdp_message message = {
		.kind = TDP_MESSAGE_LISTING,
		.request_id = request->request_id,
		.listing = {.entry_count = PAGE_ROWS,
			    .entries = entries,
			    .next_cursor = is_first ? PAGE_ROWS : 0},
	};

	for (size_t i = 0; i < PAGE_ROWS; i++) {
		size_t row = is_first ? i : i + PAGE_ROWS;

		entries[i] = (struct tdp_list_entry){
			.name = rows[row].name,
			.owner_uid = rows[row].owner_uid,
			.generation = row + 1,
			.access = TIDL_ACCESS_SHARED,
			.retention = TIDL_RETENTION_PERSIST,
			.dtype = {2, 32, 1},
			.ndim = 1,
			.shape = shape,
			.tensor_count = 1,
		};
	}
	return tt_fake_send(fd, &message, NULL, 0);
}

static bool send_inspection(struct pages *pages, int fd, const struct tdp_message *request)
{
	struct tdp_holder holder = {.kind = TIDL_HOLDER_LEASE, .attach = TIDL_ATTACH_READ};
	bool is_first = request->inspect.generation == 0;
	struct tdp_message message = {
		.kind = TDP_MESSAGE_INSPECTION,
		.request_id = request->request_id,
		.inspection = {.name = "x",
			       .generation = 10 + (uint64_t)pages->gone_count,
			       .access = TIDL_ACCESS_SHARED,
			       .retention = TIDL_RETENTION_PERSIST,
			       .path = TIDL_PATH_EMPTY,
			       .holder_count = 1,
			       .holders = &holder,
			       .next_holder_cursor = is_first ? 1 : 0},
	};

	holder.process.name = holder.process.command = holder.process.cgroup = "";
	message.inspection.publisher = holder.process;
	if (!is_first && pages->gone_count < pages->gone_limit) {
		pages->gone_count++;
		return tt_fake_send_failure(fd, request->request_id, TIDL_ERR_GENERATION_GONE);
	}
	return tt_fake_send(fd, &message, NULL, 0);
}

static void serve_pages(struct tt_fake *fake, int fd)
{
	struct pages *pages = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_LIST) {
			(void)send_listing(pages, fd, &message);
		} else if (message.kind == TDP_MESSAGE_INSPECT) {
			(void)send_inspection(pages, fd, &message);
		} else if (message.kind == TDP_MESSAGE_PUBLISH) {
			pages->published = message.publish;
			(void)tt_fake_send_failure(fd, message.request_id, TIDL_ERR_EXISTS);
		}
	}
	tdp_arena_deinit(&arena);
}

TT_TEST(pages, a_listing_has_one_line_for_each_name, .timeout = 60)
{
	static const uint64_t expected[] = {1, 3, 5, 6};
	struct pages pages = {0};
	struct tt_fake fake = {.serve = serve_pages, .context = &pages};
	struct tidl_client *client;
	struct tidl_listing *listing = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_list(client, "*:**", &listing), 0, "%s", tidl_last_error());
	cr_assert_eq(tidl_listing_count(listing), TDP_ARRAY_LENGTH(expected));
	for (size_t i = 0; i < TDP_ARRAY_LENGTH(expected); i++)
		cr_expect_eq(tidl_listing_entry(listing, i)->generation, expected[i]);
	tidl_listing_free(listing);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

TT_TEST(pages, an_inspection_starts_over, .timeout = 60)
{
	struct pages pages = {.gone_limit = 3};
	struct tt_fake fake = {.serve = serve_pages, .context = &pages};
	struct tidl_client *client;
	struct tidl_inspection *inspection = NULL;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	cr_assert_eq(tidl_inspect(client, "x", &inspection), 0, "%s", tidl_last_error());
	cr_expect_eq(tidl_inspection_info(inspection)->generation, 13);
	cr_expect_eq(tidl_inspection_info(inspection)->holder_count, 2);
	tidl_inspection_free(inspection);
	pages.gone_limit = INT32_MAX;
	cr_expect_eq(tidl_inspect(client, "x", &inspection), TIDL_ERR_GENERATION_GONE);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}

TT_TEST(pages, a_group_may_be_the_first_one, .timeout = 60)
{
	static const int64_t none[] = {0};
	struct tidl_publish_options options = {.size = sizeof(options), .mode = 0640};
	struct pages pages = {0};
	struct tt_fake fake = {.serve = serve_pages, .context = &pages};
	struct tidl_client *client;
	struct tt_foreign foreign;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	for (int i = 0; i < 3; i++) {
		options.has_group = i == 1;
		options.group = i == 2 ? 5 : 0;
		tt_foreign_init(&foreign, NULL, 1, none, NULL);
		cr_assert_eq(tidl_publish(client, "x", &foreign.managed, &options, NULL),
			     TIDL_ERR_EXISTS, "%s", tidl_last_error());
		cr_expect_eq(pages.published.has_gid, i > 0);
		cr_expect_eq(pages.published.gid, options.group);
	}
	tidl_disconnect(client);
	tt_fake_stop(&fake);
}
