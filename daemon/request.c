/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: memory alone. What becomes of one is the dispatcher's business. */
#include "daemon/request.h"

#include <stdlib.h>

#include "include/tidl/error.h"
#include "proto/base/fd.h"
#include "proto/wire/limits.h"

struct tdd_request *tdd_request_new(void)
{
	struct tdd_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->fd = -1;
	tdp_arena_init(&request->arena, TDP_UNPACK_MAX_BYTES);
	return request;
}

static void request_release(struct tdd_request *request)
{
	if (request->state)
		request->free_state(request->state);
	tdp_fd_close(tdd_request_steal_fd(request));
	tdd_charge_deinit(&request->bytes);
	tdp_arena_deinit(&request->arena);
}

void tdd_request_clear(struct tdd_request *request)
{
	request_release(request);
	request->state = NULL;
	request->position = 0;
	request->ends_awaited = 0;
	tdp_arena_init(&request->arena, TDP_UNPACK_MAX_BYTES);
	request->message = (struct tdp_message){0};
}

struct tdd_request *tdd_request_free(struct tdd_request *request)
{
	if (!request)
		return NULL;
	request_release(request);
	free(request);
	return NULL;
}

int tdd_request_take_fd(struct tdd_request *request, int fd, struct tdd_account *account,
			struct tdp_fault *fault)
{
	int r = tdd_charge_init(&request->descriptor, account, TDD_QUOTA_DESCRIPTORS, 1, fault);

	if (r < 0)
		return r;
	request->fd = fd;
	return 0;
}

int tdd_request_steal_fd(struct tdd_request *request)
{
	int fd = request->fd;

	request->fd = -1;
	tdd_charge_deinit(&request->descriptor);
	return fd;
}

int tdd_request_charge(struct tdd_request *request, struct tdd_account *account)
{
	uint64_t size_bytes = sizeof(*request) + request->arena.total_bytes;
	struct tdp_fault fault;

	if (request->bytes.account)
		return 0;
	return tdd_charge_init(&request->bytes, account, TDD_QUOTA_QUEUE_BYTES, size_bytes,
			       &fault) < 0
		       ? TIDL_ERR_QUOTA
		       : 0;
}
