/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of what is held, once more. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lib/open.h"
#include "client/lib/tensor.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/fake_broker.h"

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

/* ---- brokers that lie ---- */

enum open_lie {
	OPEN_TRUTH,
	OPEN_OTHER_SEGMENT,
	OPEN_OTHER_SIZE,
	OPEN_NO_DESCRIPTOR,
	OPEN_TWO_DESCRIPTORS,
	OPEN_SHORT_MEMORY,
	OPEN_DEVICE,
	OPEN_LIE_COUNT
};

static const int open_lie_results[OPEN_LIE_COUNT] = {
	[OPEN_TRUTH] = 0,
	[OPEN_OTHER_SEGMENT] = TIDL_ERR_SEGMENT_BAD,
	[OPEN_OTHER_SIZE] = TIDL_ERR_SEGMENT_BAD,
	[OPEN_NO_DESCRIPTOR] = TIDL_ERR_PROTOCOL,
	[OPEN_TWO_DESCRIPTORS] = TIDL_ERR_PROTOCOL,
	[OPEN_SHORT_MEMORY] = TIDL_ERR_SEGMENT_BAD,
	[OPEN_DEVICE] = TIDL_ERR_UNSUPPORTED,
};

static void send_opened(int fd, const struct tdp_message *request, const struct tt_grant *grant,
			enum open_lie lie)
{
	struct tdp_message reply = {
		.kind = TDP_MESSAGE_OPENED,
		.request_id = request->request_id,
		.fd_count = 1,
		.opened = {.segment = grant->segment},
	};
	struct tdp_segment *segment = &reply.opened.segment;
	int fds[] = {grant->read_fd, grant->read_fd};
	int short_fd = -1;

	if (lie == OPEN_OTHER_SEGMENT)
		segment->id++;
	if (lie == OPEN_OTHER_SIZE)
		segment->data_size_bytes *= 2;
	if (lie == OPEN_NO_DESCRIPTOR)
		reply.fd_count = 0;
	if (lie == OPEN_TWO_DESCRIPTORS)
		reply.fd_count = 2;
	if (lie == OPEN_DEVICE)
		segment->kind = TDP_SEGMENT_DEVICE_HANDLE;
	if (lie == OPEN_SHORT_MEMORY) {
		short_fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		(void)fcntl(short_fd, F_ADD_SEALS, F_SEAL_SHRINK);
		fds[0] = short_fd;
	}
	(void)tt_fake_send(fd, &reply, fds, reply.fd_count);
	if (short_fd >= 0)
		close(short_fd);
}

static void serve_open(struct tt_fake *fake, int fd)
{
	const enum open_lie *lie = fake->context;
	struct tt_grant grant = {.write_fd = -1, .read_fd = -1};
	struct tdp_message message;
	struct tdp_arena arena;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			tt_grant_init(&grant, &message, 31, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.read_fd, 1);
		} else if (message.kind == TDP_MESSAGE_OPEN) {
			send_opened(fd, &message, &grant, *lie);
		}
	}
	tt_grant_deinit(&grant);
	tdp_arena_deinit(&arena);
}

TT_TEST(open, lies, .timeout = 60)
{
	for (int lie = 0; lie < OPEN_LIE_COUNT; lie++) {
		enum open_lie context = (enum open_lie)lie;
		struct tt_fake fake = {.serve = serve_open, .context = &context};
		struct tdc_opened opened = TDC_OPENED_NONE;
		struct tidl_client *client;
		struct tidl_tensor *tensor;
		struct tdp_fault fault;

		tt_fake_start(&fake);
		client = tt_fake_connect(&fake);
		tensor = tt_get(client, "x", TIDL_ATTACH_READ);
		cr_expect_eq(
			tdc_open(client, tensor->origin->lease, tensor->segment, &opened, &fault),
			open_lie_results[lie], "lie %d", lie);
		cr_expect_eq(opened.read_fd >= 0, lie == OPEN_TRUTH);
		tdc_opened_deinit(&opened);
		tidl_tensor_unref(tensor);
		tidl_disconnect(client);
		tt_fake_stop(&fake);
	}
}
