/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two publishes, two gets and one release between marks that strace can see: writes to descriptor
 * -1, which fail and do nothing. `scripts/bench --syscalls` counts what lies between them. What is
 * attached was published by another process; $TIDL_SOCKET says where the broker is.
 */
#include <err.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>
#include <tidl/tidl.h>

static const int64_t shape[] = {1024};
static const struct tidl_dtype float32 = {.code = kDLFloat, .bits = 32, .lanes = 1};

static void mark(const char *text)
{
	if (write(-1, text, strlen(text)) >= 0)
		errx(1, "descriptor -1 is open");
}

static void check(int result, const char *what)
{
	if (result < 0)
		errx(1, "%s: %s (%s)", what, tidl_last_error(), tidl_error_name(result));
}

/* With marks around the publish itself when @is_marked. */
static struct tidl_tensor *publish(struct tidl_client *client, const char *name, int is_marked)
{
	DLManagedTensorVersioned *managed = NULL;
	struct tidl_tensor *tensor = NULL;

	check(tidl_empty(client, 1, shape, float32, &tensor), "allocate");
	check(tidl_tensor_export(tensor, &managed), "export");
	if (is_marked)
		mark("begin publish of allocated memory");
	check(tidl_publish(client, name, managed, NULL, NULL), "publish");
	if (is_marked)
		mark("end");
	return tensor;
}

static void publish_foreign(struct tidl_client *client, const char *name)
{
	static float source[1024];
	int64_t foreign_shape[] = {1024};
	int64_t strides[] = {1};
	DLManagedTensorVersioned managed = {
		.version = {.major = DLPACK_MAJOR_VERSION, .minor = DLPACK_MINOR_VERSION},
		.dl_tensor =
			{
				.data = source,
				.device = {.device_type = kDLCPU},
				.ndim = 1,
				.dtype = {.code = kDLFloat, .bits = 32, .lanes = 1},
				.shape = foreign_shape,
				.strides = strides,
			},
	};

	mark("begin publish of foreign memory");
	check(tidl_publish(client, name, &managed, NULL, NULL), "publish");
	mark("end");
}

static void publish_elsewhere(const char *name)
{
	int status = 0;
	pid_t child = fork();

	if (child < 0)
		err(1, "fork");
	if (child == 0) {
		struct tidl_client *client = NULL;

		check(tidl_connect(NULL, &client), "connect");
		tidl_tensor_unref(publish(client, name, 0));
		tidl_disconnect(client);
		_exit(0);
	}
	if (waitpid(child, &status, 0) < 0 || status != 0)
		errx(1, "the publisher failed");
}

static void get(struct tidl_client *client, const char *name)
{
	struct tidl_tensor *tensor = NULL;
	struct tidl_tensor *again = NULL;

	mark("begin get");
	check(tidl_get(client, name, NULL, &tensor), "get");
	mark("end");
	mark("begin get of what is attached already");
	check(tidl_get(client, name, NULL, &again), "get");
	mark("end");
	tidl_tensor_unref(again);
	mark("begin release");
	tidl_tensor_unref(tensor);
	mark("end");
}

int main(void)
{
	struct tidl_client *client = NULL;
	struct tidl_tensor *warm = NULL;

	publish_elsewhere("one_get/x");
	check(tidl_connect(NULL, &client), "connect");
	/* Whatever a client does only once is over before the marks. */
	check(tidl_get(client, "one_get/x", NULL, &warm), "get");
	tidl_tensor_unref(warm);

	tidl_tensor_unref(publish(client, "one_get/y", 1));
	publish_foreign(client, "one_get/z");
	get(client, "one_get/x");
	check(tidl_remove(client, "one_get/x"), "remove");
	check(tidl_remove(client, "one_get/y"), "remove");
	check(tidl_remove(client, "one_get/z"), "remove");
	tidl_disconnect(client);
	return 0;
}
