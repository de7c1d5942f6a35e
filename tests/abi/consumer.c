/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody who has nothing but the installed headers and library: publishes a tensor
 * and gets it again. Exits 0 when what was written arrived.
 */
#include <stdio.h>
#include <string.h>

#include <tidl/tidl.h>

static int fail(const char *what)
{
	fprintf(stderr, "consumer: %s: %s\n", what, tidl_last_error());
	return 1;
}

static int exchange(struct tidl_client *client)
{
	static const int64_t shape[] = {2, 3};
	const struct tidl_dtype float32 = {2, 32, 1};
	struct tidl_get_options options;
	struct tidl_tensor *written;
	struct tidl_tensor *seen;
	struct DLManagedTensorVersioned *managed;
	float *data;
	int is_same;

	if (tidl_empty(client, 2, shape, float32, &written) != 0)
		return fail("empty");
	data = tidl_tensor_data(written);
	data[5] = 42.0f;
	if (tidl_tensor_export(written, &managed) != 0)
		return fail("export");
	if (tidl_publish(client, "abi/x", managed, NULL, NULL) != 0)
		return fail("publish");
	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	options.attach = TIDL_ATTACH_READ;
	options.timeout_ms = 10000;
	if (tidl_get(client, "abi/x", &options, &seen) != 0)
		return fail("get");
	is_same = ((const float *)tidl_tensor_data(seen))[5] == 42.0f;
	tidl_tensor_unref(seen);
	tidl_tensor_unref(written);
	if (tidl_remove(client, "abi/x") != 0)
		return fail("remove");
	return is_same ? 0 : fail("other bytes than were written");
}

int main(void)
{
	struct tidl_client *client;
	int status;

	if (strcmp(tidl_version(), TIDL_VERSION) != 0)
		return fail("headers and library are of different versions");
	if (tidl_connect(NULL, &client) != 0)
		return fail("connect");
	status = exchange(client);
	if (tidl_shutdown(client) != 0)
		status = fail("shutdown");
	tidl_disconnect(client);
	return status;
}
