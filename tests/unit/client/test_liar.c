/* SPDX-License-Identifier: Apache-2.0 */
/* Brokers that lie: every lie is an error of its own kind, never a crash, and costs no memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "proto/mem/memfd.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/fake_broker.h"

/* ---- grants ---- */

enum lie {
	LIE_NONE,
	LIE_NO_DESCRIPTOR,
	LIE_TWO_DESCRIPTORS,
	LIE_UNCOUNTED_DESCRIPTOR,
	LIE_MISSING_DESCRIPTOR,
	LIE_SHORT_MEMORY,
	LIE_UNSEALED_MEMORY,
	LIE_A_PIPE,
	LIE_A_FOLDER,
	LIE_OFFSET_BEHIND_THE_END,
	LIE_OFFSET_OVERFLOWS,
	LIE_INTO_THE_CONTROL_PAGE,
	LIE_STRIDE_OUT,
	LIE_STRIDE_BEFORE,
	LIE_SHAPE_OVERFLOWS,
	LIE_DTYPE,
	LIE_DATA_BEYOND_SEGMENT,
	LIE_DATA_OVERFLOWS,
	LIE_DATA_UNALIGNED,
	LIE_NO_DATA,
	LIE_SEGMENT_INDEX,
	LIE_NO_SEGMENT_BUT_ELEMENTS,
	LIE_NO_SEGMENT_ID,
	LIE_NO_LEASE,
	LIE_NO_TENSOR,
	LIE_TWO_TENSORS,
	LIE_DEVICE,
	LIE_OTHER_ATTACH,
	LIE_READ_ONLY_DESCRIPTOR,
	LIE_NOT_LIVE,
	LIE_NOT_IMMUTABLE,
	LIE_OTHER_MESSAGE,
	LIE_OTHER_REQUEST,
	LIE_GARBAGE,
	LIE_EMPTY_PACKET,
	LIE_HUGE_PACKET,
	LIE_LAST_WORDS,
	LIE_COUNT
};

/* TIDL_ERR_PROTOCOL and other codes of that group end the connection unless noted. */
struct lie_row {
	const char *what;
	int expected;
	bool is_released; /* the call fails, the lease goes back, the connection goes on */
};

static const struct lie_row lies[LIE_COUNT] = {
	[LIE_NONE] = {"the truth", 0, true},
	[LIE_NO_DESCRIPTOR] = {"no descriptor", TIDL_ERR_PROTOCOL, true},
	[LIE_TWO_DESCRIPTORS] = {"two descriptors", TIDL_ERR_PROTOCOL, true},
	[LIE_UNCOUNTED_DESCRIPTOR] = {"uncounted descriptor", TIDL_ERR_PROTOCOL, false},
	[LIE_MISSING_DESCRIPTOR] = {"missing descriptor", TIDL_ERR_PROTOCOL, false},
	[LIE_SHORT_MEMORY] = {"short memory", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_UNSEALED_MEMORY] = {"unsealed memory", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_A_PIPE] = {"a pipe", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_A_FOLDER] = {"a folder", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_OFFSET_BEHIND_THE_END] = {"offset behind the end", TIDL_ERR_PROTOCOL, true},
	[LIE_OFFSET_OVERFLOWS] = {"offset overflows", TIDL_ERR_PROTOCOL, true},
	[LIE_INTO_THE_CONTROL_PAGE] = {"into the control page", TIDL_ERR_PROTOCOL, true},
	[LIE_STRIDE_OUT] = {"stride out", TIDL_ERR_PROTOCOL, true},
	[LIE_STRIDE_BEFORE] = {"stride before the start", TIDL_ERR_PROTOCOL, true},
	[LIE_SHAPE_OVERFLOWS] = {"shape overflows", TIDL_ERR_PROTOCOL, true},
	[LIE_DTYPE] = {"data type", TIDL_ERR_PROTOCOL, true},
	[LIE_DATA_BEYOND_SEGMENT] = {"data beyond the segment", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_DATA_OVERFLOWS] = {"data overflows", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_DATA_UNALIGNED] = {"data unaligned", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_NO_DATA] = {"no data", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_SEGMENT_INDEX] = {"segment index", TIDL_ERR_PROTOCOL, false},
	[LIE_NO_SEGMENT_BUT_ELEMENTS] = {"elements without memory", TIDL_ERR_PROTOCOL, true},
	[LIE_NO_SEGMENT_ID] = {"no segment id", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_NO_LEASE] = {"no lease", TIDL_ERR_PROTOCOL, false},
	[LIE_NO_TENSOR] = {"no tensor", TIDL_ERR_PROTOCOL, true},
	[LIE_TWO_TENSORS] = {"two tensors", TIDL_ERR_PROTOCOL, true},
	[LIE_DEVICE] = {"device memory", TIDL_ERR_UNSUPPORTED, true},
	[LIE_OTHER_ATTACH] = {"another attach", TIDL_ERR_PROTOCOL, true},
	[LIE_READ_ONLY_DESCRIPTOR] = {"read-only for write", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_NOT_LIVE] = {"live without a seal", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_NOT_IMMUTABLE] = {"immutable without a seal", TIDL_ERR_SEGMENT_BAD, true},
	[LIE_OTHER_MESSAGE] = {"another message", TIDL_ERR_PROTOCOL, false},
	[LIE_OTHER_REQUEST] = {"another request", TIDL_ERR_PROTOCOL, false},
	[LIE_GARBAGE] = {"garbage", TIDL_ERR_PROTOCOL, false},
	[LIE_EMPTY_PACKET] = {"an empty packet", TIDL_ERR_PROTOCOL, false},
	[LIE_HUGE_PACKET] = {"a huge packet", TIDL_ERR_PROTOCOL, false},
	[LIE_LAST_WORDS] = {"last words", TIDL_ERR_BROKER_GONE, false},
};

enum { LEASE_ID = 31 };

static void grant_bend_tensor(struct tt_grant *grant, enum lie lie)
{
	switch (lie) {
	case LIE_OFFSET_BEHIND_THE_END:
		grant->tensor.byte_offset = grant->segment.data_size_bytes - 12;
		break;
	case LIE_OFFSET_OVERFLOWS:
		grant->tensor.byte_offset = UINT64_MAX - 3;
		break;
	case LIE_INTO_THE_CONTROL_PAGE:
		grant->tensor.byte_offset = grant->segment.data_size_bytes;
		break;
	case LIE_STRIDE_OUT:
		grant->strides[0] = 1 << 20;
		break;
	case LIE_STRIDE_BEFORE:
		grant->strides[0] = -1;
		break;
	case LIE_SHAPE_OVERFLOWS:
		grant->shape[0] = INT64_MAX;
		grant->strides[0] = INT64_MAX;
		break;
	case LIE_DTYPE:
		grant->tensor.dtype.bits = 33;
		break;
	case LIE_SEGMENT_INDEX:
		grant->tensor.segment_index = 1;
		break;
	case LIE_NO_SEGMENT_BUT_ELEMENTS:
		grant->tensor.segment_index = -1;
		break;
	default:
		break;
	}
}

static void grant_bend_segment(struct tt_grant *grant, enum lie lie)
{
	struct tdp_segment *segment = &grant->segment;

	switch (lie) {
	case LIE_SHORT_MEMORY:
		segment->size_bytes *= 8;
		segment->data_size_bytes *= 4;
		break;
	case LIE_DATA_BEYOND_SEGMENT:
		segment->data_size_bytes = 2 * segment->size_bytes;
		break;
	case LIE_DATA_OVERFLOWS:
		segment->data_offset_bytes = UINT64_MAX - 4095;
		break;
	case LIE_DATA_UNALIGNED:
		segment->data_offset_bytes = 16;
		grant->tensor.byte_offset = 16;
		break;
	case LIE_NO_DATA:
		segment->data_size_bytes = 0;
		break;
	case LIE_NO_SEGMENT_ID:
		segment->id = 0;
		break;
	case LIE_DEVICE:
		segment->kind = TDP_SEGMENT_DEVICE_CHUNKS;
		break;
	default:
		break;
	}
}

static void grant_bend_message(struct tt_grant *grant, enum lie lie)
{
	struct tdp_granted *granted = &grant->message.granted;

	switch (lie) {
	case LIE_NO_DESCRIPTOR:
		grant->message.fd_count = 0;
		break;
	case LIE_TWO_DESCRIPTORS:
		grant->message.fd_count = 2;
		break;
	case LIE_UNCOUNTED_DESCRIPTOR:
		grant->message.fd_count = 0;
		break;
	case LIE_NO_LEASE:
		granted->lease_id = 0;
		break;
	case LIE_NO_TENSOR:
		granted->tensor_count = 0;
		break;
	case LIE_OTHER_ATTACH:
		granted->attach = TIDL_ATTACH_COPY_ON_WRITE;
		break;
	case LIE_NOT_LIVE:
		granted->access = TIDL_ACCESS_LIVE;
		break;
	case LIE_NOT_IMMUTABLE:
		granted->access = TIDL_ACCESS_IMMUTABLE;
		break;
	case LIE_OTHER_REQUEST:
		grant->message.request_id += 1000;
		break;
	default:
		break;
	}
}

/* What is sent with the message; may make a descriptor of its own. */
static uint32_t grant_bend_fds(const struct tt_grant *grant, enum lie lie, int fds[2],
			       int *ret_extra_fd)
{
	int ends[2];

	fds[0] = grant->write_fd;
	fds[1] = grant->read_fd;
	*ret_extra_fd = -1;
	switch (lie) {
	case LIE_NO_DESCRIPTOR:
	case LIE_MISSING_DESCRIPTOR:
		return 0;
	case LIE_TWO_DESCRIPTORS:
		return 2;
	case LIE_UNSEALED_MEMORY:
		*ret_extra_fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		(void)!ftruncate(*ret_extra_fd, (off_t)grant->segment.size_bytes);
		break;
	case LIE_A_PIPE:
		if (pipe2(ends, O_CLOEXEC) == 0) {
			close(ends[1]);
			*ret_extra_fd = ends[0];
		}
		break;
	case LIE_A_FOLDER:
		*ret_extra_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		break;
	case LIE_READ_ONLY_DESCRIPTOR:
		fds[0] = grant->read_fd;
		break;
	default:
		break;
	}
	if (*ret_extra_fd >= 0)
		fds[0] = *ret_extra_fd;
	return 1;
}

static void send_raw(int fd, size_t size_bytes, int byte)
{
	char *bytes = malloc(size_bytes ? size_bytes : 1);
	int buffer_bytes = 1 << 20;

	memset(bytes, byte, size_bytes);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof(buffer_bytes));
	(void)!send(fd, bytes, size_bytes, MSG_NOSIGNAL);
	free(bytes);
}

static void lie_send(int fd, const struct tdp_message *request, enum lie lie)
{
	struct tdp_tensor tensors[2];
	struct tt_grant grant;
	uint32_t fd_count;
	int extra_fd;
	int fds[2];

	tt_grant_init(&grant, request, LEASE_ID, 5);
	grant_bend_tensor(&grant, lie);
	grant_bend_segment(&grant, lie);
	grant_bend_message(&grant, lie);
	if (lie == LIE_TWO_TENSORS) {
		tensors[0] = grant.tensor;
		tensors[1] = grant.tensor;
		grant.message.granted.tensors = tensors;
		grant.message.granted.tensor_count = 2;
	}
	if (lie == LIE_OTHER_MESSAGE)
		grant.message = (struct tdp_message){
			.kind = TDP_MESSAGE_DONE, .request_id = request->request_id, .fd_count = 1};
	fd_count = grant_bend_fds(&grant, lie, fds, &extra_fd);
	if (lie == LIE_GARBAGE)
		send_raw(fd, 100, 0xff);
	else if (lie == LIE_EMPTY_PACKET)
		send_raw(fd, 0, 0);
	else if (lie == LIE_HUGE_PACKET)
		send_raw(fd, TDP_PACKET_MAX_BYTES + 1, 0);
	else if (lie == LIE_LAST_WORDS)
		(void)tt_fake_send_failure(fd, 0, TIDL_ERR_LIMIT);
	else
		(void)tt_fake_send(fd, &grant.message, fds, fd_count);
	if (extra_fd >= 0)
		close(extra_fd);
	tt_grant_deinit(&grant);
}

struct liar {
	enum lie lie;
	int released;
};

static void serve_lie(struct tt_fake *fake, int fd)
{
	struct liar *liar = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET)
			lie_send(fd, &message, liar->lie);
		else if (message.kind == TDP_MESSAGE_RELEASE)
			liar->released += message.release.lease_count == 1 &&
					  message.release.lease_ids[0] == LEASE_ID;
		else if (message.kind == TDP_MESSAGE_REMOVE)
			(void)tt_fake_send_failure(fd, message.request_id, TIDL_ERR_NOT_FOUND);
	}
	tdp_arena_deinit(&arena);
}

static void lie_try(enum lie lie)
{
	struct liar liar = {.lie = lie};
	struct tt_fake fake = {.serve = serve_lie, .context = &liar};
	struct tidl_get_options options = {.size = sizeof(options), .attach = TIDL_ATTACH_WRITE};
	struct tidl_tensor *tensor = NULL;
	struct tidl_client *client;
	int r;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	r = tidl_get(client, "x", &options, &tensor);
	cr_assert_eq(r, lies[lie].expected, "%s: %d %s", lies[lie].what, r, tidl_last_error());
	if (r == 0)
		((float *)tidl_tensor_data(tensor))[3] = 1.0f;
	else
		cr_assert_str_not_empty(tidl_last_error());
	cr_assert_eq(tensor != NULL, r == 0);
	tidl_tensor_unref(tensor);
	r = tidl_remove(client, "x");
	if (lies[lie].is_released)
		cr_assert_eq(r, TIDL_ERR_NOT_FOUND, "%s: %d", lies[lie].what, r);
	cr_assert_eq(client->segments.count, 0);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(liar.released, lies[lie].is_released, "%s: released %d times", lies[lie].what,
		     liar.released);
}

TT_TEST(liar, grants, .timeout = 120)
{
	for (int lie = 0; lie < LIE_COUNT; lie++)
		lie_try((enum lie)lie);
}

/* ---- allocations ---- */

enum short_allocation { SHORT_DATA, SHORT_DESCRIPTORS, SHORT_MEMORY, SHORT_READ_ONLY, SHORT_COUNT };

struct shortener {
	enum short_allocation kind;
	int released;
};

static void serve_short(struct tt_fake *fake, int fd)
{
	struct shortener *shortener = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;
	struct tt_grant grant;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_ALLOCATE) {
			struct tdp_message reply = {
				.kind = TDP_MESSAGE_ALLOCATED,
				.request_id = message.request_id,
				.fd_count = shortener->kind == SHORT_DESCRIPTORS ? 0 : 2,
			};
			int fds[2];

			tt_grant_init(&grant, &message, 1, 8);
			if (shortener->kind == SHORT_MEMORY) {
				grant.segment.data_size_bytes = message.allocate.data_size_bytes;
				grant.segment.size_bytes = 2 * message.allocate.data_size_bytes;
			}
			reply.allocated.segment = grant.segment;
			fds[0] =
				shortener->kind == SHORT_READ_ONLY ? grant.read_fd : grant.write_fd;
			fds[1] = grant.read_fd;
			(void)tt_fake_send(fd, &reply, fds, reply.fd_count);
			tt_grant_deinit(&grant);
		} else if (message.kind == TDP_MESSAGE_RELEASE) {
			shortener->released += message.release.segment_count == 1 &&
					       message.release.segment_ids[0] == 8;
		}
	}
	tdp_arena_deinit(&arena);
}

TT_TEST(liar, allocations, .timeout = 60)
{
	for (int kind = 0; kind < SHORT_COUNT; kind++) {
		struct shortener shortener = {.kind = (enum short_allocation)kind};
		struct tt_fake fake = {.serve = serve_short, .context = &shortener};
		struct tidl_client *client;
		struct tidl_tensor *tensor = NULL;
		/* One page is what it gives. */
		int64_t extent = kind == SHORT_DATA || kind == SHORT_MEMORY ? 4096 : 4;
		int r;

		tt_fake_start(&fake);
		client = tt_fake_connect(&fake);
		r = tidl_empty(client, 1, &extent, tt_float32, &tensor);
		cr_assert_eq(r, TIDL_ERR_SEGMENT_BAD, "kind %d: %d %s", kind, r, tidl_last_error());
		cr_assert_null(tensor);
		tidl_disconnect(client);
		tt_fake_stop(&fake);
		cr_assert_eq(shortener.released, 1, "kind %d", kind);
	}
}

/* ---- our own limits ---- */

/* Keeps its own descriptors until the lease is back, so that their numbers stay taken. */
static void serve_holding(struct tt_fake *fake, int fd)
{
	int *released = fake->context;
	struct tdp_message message;
	struct tdp_arena arena;
	struct tt_grant grant;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	while (tt_fake_receive(fd, &arena, &message)) {
		if (message.kind == TDP_MESSAGE_GET) {
			tt_grant_init(&grant, &message, LEASE_ID, 5);
			(void)tt_fake_send(fd, &grant.message, &grant.write_fd, 1);
		} else if (message.kind == TDP_MESSAGE_RELEASE) {
			tt_grant_deinit(&grant);
			++*released;
		}
	}
	tdp_arena_deinit(&arena);
}

TT_TEST(liar, at_the_descriptor_limit_only_the_call_fails, .timeout = 60)
{
	int released = 0;
	struct tt_fake fake = {.serve = serve_holding, .context = &released};
	struct tidl_client *client;
	struct tidl_get_options options = {.size = sizeof(options), .attach = TIDL_ATTACH_WRITE};
	struct tidl_tensor *tensor = NULL;
	struct rlimit limit, low;
	int fillers[256];
	int filler_count = 0;
	int fd;
	int r;

	tt_fake_start(&fake);
	client = tt_fake_connect(&fake);
	/* The thread of the fake broker needs two. */
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 64;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (filler_count < 256 && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		fillers[filler_count++] = fd;
	close(fillers[--filler_count]);
	close(fillers[--filler_count]);
	r = tidl_get(client, "x", &options, &tensor);
	while (filler_count > 0)
		close(fillers[--filler_count]);
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	cr_assert_eq(r, TIDL_ERR_DESCRIPTORS, "%d: %s", r, tidl_last_error());
	cr_assert_eq(tidl_get(client, "x", &options, &tensor), 0, "%s", tidl_last_error());
	tidl_tensor_unref(tensor);
	tidl_disconnect(client);
	tt_fake_stop(&fake);
	cr_assert_eq(released, 2);
}
