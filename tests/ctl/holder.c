/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client for the tests of tidlctl: `ctl_holder publish NAME` publishes an 8x4 float32 tensor,
 * `ctl_holder attach NAME` attaches one for writing. Prints "ready", holds until standard input
 * ends. The socket comes from $TIDL_SOCKET; further arguments only show up in its command line.
 */
#include <stdio.h>
#include <string.h>

#include <dlpack/dlpack.h>
#include <tidl/tidl.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, tidl_last_error());
	return 1;
}

static int publish(struct tidl_client *client, const char *name, struct tidl_tensor **ret_tensor)
{
	static const int64_t shape[] = {8, 4};
	struct tidl_publish_options options = {
		.size = sizeof(options),
		.metadata = "{\"unit\": \"m\"}",
	};
	DLManagedTensorVersioned *managed = NULL;

	if (tidl_empty(client, 2, shape,
		       (struct tidl_dtype){.code = kDLFloat, .bits = 32, .lanes = 1},
		       ret_tensor) < 0 ||
	    tidl_tensor_export(*ret_tensor, &managed) < 0)
		return fail("allocate");
	if (tidl_publish(client, name, managed, &options, NULL) < 0)
		return fail("publish");
	return 0;
}

static int attach(struct tidl_client *client, const char *name, struct tidl_tensor **ret_tensor)
{
	struct tidl_get_options options = {
		.size = sizeof(options),
		.attach = TIDL_ATTACH_WRITE,
	};

	return tidl_get(client, name, &options, ret_tensor) < 0 ? fail("get") : 0;
}

int main(int argc, char **argv)
{
	struct tidl_client *client = NULL;
	struct tidl_tensor *tensor = NULL;
	int status;

	if (argc < 3)
		return 2;
	if (tidl_connect(NULL, &client) < 0)
		return fail("connect");
	status = strcmp(argv[1], "publish") == 0 ? publish(client, argv[2], &tensor)
						 : attach(client, argv[2], &tensor);
	if (status == 0) {
		puts("ready");
		fflush(stdout);
		while (getchar() != EOF)
			continue;
	}
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	return status;
}
