/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/report.h"

#include <pthread.h>

#include "tests/support/leak.h"

#include <tidl/tidl.h>

TT_TEST(report, older_options_leave_what_they_do_not_have)
{
	struct tidl_connect_options older = {
		.size = offsetof(struct tidl_connect_options, daemon_path),
		.no_autostart = 1,
		.daemon_path = "not to be read",
	};
	struct tidl_connect_options complete = {0};
	struct tdp_fault fault;

	cr_assert_eq(tdc_options_copy(&older, &complete, sizeof(complete), &fault), 0);
	cr_assert_eq(complete.no_autostart, 1);
	cr_assert_null(complete.daemon_path);
}

TT_TEST(report, newer_options_must_be_unused)
{
	struct {
		struct tidl_get_options known;
		uint64_t later;
	} newer = {.known = {.size = sizeof(newer), .generation = 5}};
	struct tidl_get_options complete = {0};
	struct tdp_fault fault;

	cr_assert_eq(tdc_options_copy(&newer, &complete, sizeof(complete), &fault), 0);
	cr_assert_eq(complete.generation, 5);
	newer.later = 1;
	cr_assert_eq(tdc_options_copy(&newer, &complete, sizeof(complete), &fault),
		     TIDL_ERR_UNSUPPORTED);
}

TT_TEST(report, wild_sizes_are_refused)
{
	struct tidl_get_options options = {.size = 0};
	struct tdp_fault fault;

	cr_assert_eq(tdc_options_copy(&options, &options, sizeof(options), &fault),
		     TIDL_ERR_INVALID_ARGUMENT);
	options.size = SIZE_MAX;
	cr_assert_eq(tdc_options_copy(&options, &options, sizeof(options), &fault),
		     TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tdc_options_copy(NULL, &options, sizeof(options), &fault), 0);
}

TT_TEST(report, null_arguments)
{
	struct tidl_dtype float32 = {.code = 2, .bits = 32, .lanes = 1};

	cr_assert_eq(tidl_connect(NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tidl_last_error(), "ret_client"));
	cr_assert_eq(tidl_empty(NULL, 0, NULL, float32, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_get(NULL, "x", NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_publish(NULL, "x", NULL, NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_publish_legacy(NULL, "x", NULL, NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_remove(NULL, "x"), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_list(NULL, NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_inspect(NULL, "x", NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_shutdown(NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_fd(NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_dispatch(NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_tensor_export(NULL, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_tensor_export_legacy(NULL, 0, NULL), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_null(tidl_broker(NULL));
	cr_assert_null(tidl_tensor_ref(NULL));
	cr_assert_null(tidl_tensor_unref(NULL));
	tidl_disconnect(NULL);
	tidl_listing_free(NULL);
	tidl_inspection_free(NULL);
}

static void *other_thread(void *argument)
{
	const char *text = tidl_last_error();

	*(size_t *)argument = strlen(text);
	return NULL;
}

TT_TEST(report, each_thread_has_its_own_sentence)
{
	size_t length = 1;
	pthread_t thread;

	cr_assert_eq(tidl_remove(NULL, "x"), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(pthread_create(&thread, NULL, other_thread, &length), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(length, 0);
	cr_assert_str_not_empty(tidl_last_error());
}

TT_TEST(report, words)
{
	char buffer[32];
	struct tidl_dtype dtype;

	cr_assert_str_eq(tidl_access_name(TIDL_ACCESS_SHARED), "shared");
	cr_assert_str_eq(tidl_attach_name(TIDL_ATTACH_COPY_ON_WRITE), "copy_on_write");
	cr_assert_str_eq(tidl_retention_name(TIDL_RETENTION_UNTIL_IDLE), "until-idle");
	cr_assert_str_eq(tidl_path_name(TIDL_PATH_ALLOCATED), "allocated");
	cr_assert_str_eq(tidl_copy_reason_name(TIDL_COPY_REASON_OTHER_BROKER), "other_broker");
	cr_assert_str_eq(tidl_access_name((enum tidl_access)99), "unknown");
	cr_assert_str_eq(tidl_attach_name((enum tidl_attach)99), "unknown");
	cr_assert_str_eq(tidl_retention_name((enum tidl_retention)99), "unknown");
	cr_assert_str_eq(tidl_path_name((enum tidl_path)99), "unknown");
	cr_assert_str_eq(tidl_copy_reason_name((enum tidl_copy_reason)99), "unknown");
	cr_assert_str_eq(tidl_error_name(TIDL_ERR_NOT_FOUND), "NOT_FOUND");
	cr_assert_str_eq(tidl_version(), TIDL_VERSION);
	cr_assert_eq(tidl_dtype_parse("float32", &dtype), 0);
	cr_assert_str_eq(tidl_dtype_name(dtype, buffer, sizeof(buffer)), "float32");
	cr_assert_eq(tidl_dtype_parse("float33", &dtype), TIDL_ERR_DTYPE);
	cr_assert_not_null(strstr(tidl_last_error(), "float33"));
}
