/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of what is held, once more. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/open.h"
#include "client/lib/tensor.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"

static const int64_t shape[] = {2, 3};

static int open_mode(int fd)
{
	return fd < 0 ? -1 : fcntl(fd, F_GETFL) & O_ACCMODE;
}

static ino_t inode(int fd)
{
	struct stat status;

	cr_assert_eq(fstat(fd, &status), 0);
	return status.st_ino;
}

static void open_tensor(struct tidl_client *client, const struct tidl_tensor *tensor,
			struct tdc_opened *ret_opened)
{
	struct tdp_fault fault;

	cr_assert_eq(tdc_open(client, tensor->origin->lease, tensor->segment, ret_opened, &fault),
		     0, "%s", fault.text);
	cr_assert_eq(ret_opened->wire.id, tensor->segment->key.id);
	cr_assert_gt(ret_opened->wire.control_offset_bytes, 0);
}

TT_TEST(open, what_the_hold_is_good_for)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *own, *reader, *writer;
	struct tdc_opened opened, again;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	own = tt_tensor_counting(client, 2, shape);
	open_tensor(client, own, &opened);
	cr_expect_eq(open_mode(opened.write_fd), O_RDWR);
	cr_expect_eq(open_mode(opened.read_fd), O_RDONLY);
	tt_publish(client, "x", own, NULL, NULL);
	reader = tt_get(client, "x", TIDL_ATTACH_READ);
	open_tensor(client, reader, &again);
	cr_expect_eq(open_mode(again.write_fd), -1);
	cr_expect_eq(open_mode(again.read_fd), O_RDONLY);
	cr_expect_eq(inode(again.read_fd), inode(opened.read_fd));
	tdc_opened_deinit(&again);
	writer = tt_get(client, "x", TIDL_ATTACH_WRITE);
	open_tensor(client, writer, &again);
	cr_expect_eq(open_mode(again.write_fd), O_RDWR);
	cr_expect_eq(open_mode(again.read_fd), -1);
	cr_expect_eq(inode(again.write_fd), inode(opened.read_fd));
	tdc_opened_deinit(&again);
	tdc_opened_deinit(&opened);
	tidl_tensor_unref(own);
	tidl_tensor_unref(reader);
	tidl_tensor_unref(writer);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

TT_TEST(open, what_was_released_cannot_be_opened)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	struct tdc_lease *lease;
	struct tdc_opened opened;
	struct tdp_fault fault;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	lease = tensor->origin->lease;
	lease->id++;
	/* Somebody else's segment is none of ours, whatever its number. */
	tensor->segment->key.id++;
	cr_expect_eq(tdc_open(client, lease, tensor->segment, &opened, &fault),
		     TIDL_ERR_PERMISSION);
	tensor->segment->key.id--;
	lease->id--;
	lease->era++;
	cr_expect_eq(tdc_open(client, lease, tensor->segment, &opened, &fault), TIDL_ERR_RELEASED);
	lease->era--;
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}

static int open_in_child(struct tidl_client *client, const struct tidl_tensor *tensor)
{
	struct tdc_opened opened;
	struct tdp_fault fault;

	return tdc_open(client, tensor->origin->lease, tensor->segment, &opened, &fault) ==
			       TIDL_ERR_RELEASED
		       ? 0
		       : 1;
}

TT_TEST(open, a_forked_child_holds_nothing)
{
	struct tt_broker broker;
	struct tidl_client *client;
	struct tidl_tensor *tensor;
	int status;
	pid_t pid;

	tt_broker_start(&broker);
	client = tt_broker_connect(&broker);
	tensor = tt_tensor_counting(client, 2, shape);
	pid = fork();
	if (pid == 0)
		_exit(open_in_child(client, tensor));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_broker_stop(&broker);
}
