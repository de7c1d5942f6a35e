/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/export.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dlpack/dlpack.h>

#include "client/lib/client.h"
#include "client/lib/tensor.h"
#include "tests/support/leak.h"
#include "tests/unit/client/support/offline.h"

enum { LEASE = 77, CAPACITY = 2048 };

static uint64_t released[CAPACITY];

static DLManagedTensorVersioned *export_new(struct tidl_tensor *tensor)
{
	DLManagedTensorVersioned *managed = NULL;

	cr_assert_eq(tidl_tensor_export(tensor, &managed), 0, "%s", tidl_last_error());
	return managed;
}

TT_TEST(export, fields)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	managed = export_new(tensor);
	cr_assert_eq(managed->version.major, 1);
	cr_assert_not_null(managed->manager_ctx);
	cr_assert_not_null(managed->deleter);
	cr_assert_eq(managed->flags, 0);
	cr_assert_eq(managed->dl_tensor.data, tidl_tensor_data(tensor));
	cr_assert_eq((uintptr_t)managed->dl_tensor.data % 256, 0);
	cr_assert_eq(managed->dl_tensor.byte_offset, 0);
	cr_assert_eq(managed->dl_tensor.device.device_type, kDLCPU);
	cr_assert_eq(managed->dl_tensor.device.device_id, 0);
	cr_assert_eq(managed->dl_tensor.ndim, 2);
	cr_assert_eq(managed->dl_tensor.shape[0], 3);
	cr_assert_eq(managed->dl_tensor.shape[1], 4);
	cr_assert_eq(managed->dl_tensor.strides[0], 4);
	cr_assert_eq(managed->dl_tensor.strides[1], 1);
	managed->deleter(managed);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}

TT_TEST(export, empty_tensors_have_no_address)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 0, TIDL_ATTACH_WRITE, 0);
	managed = export_new(tensor);
	cr_assert_null(managed->dl_tensor.data);
	cr_assert_not_null(managed->dl_tensor.strides);
	managed->deleter(managed);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}

TT_TEST(export, read_only_memory_is_flagged_and_refused_unversioned)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;
	DLManagedTensor *legacy = NULL;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_READ, LEASE);
	managed = export_new(tensor);
	cr_assert_eq(managed->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
	managed->deleter(managed);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 0, &legacy), TIDL_ERR_READ_ONLY);
	cr_assert_null(legacy);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 2, &legacy), TIDL_ERR_INVALID_ARGUMENT);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, TIDL_EXPORT_ALLOW_READONLY, &legacy), 0);
	legacy->deleter(legacy);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}

TT_TEST(export, padding_is_flagged_and_refused_unversioned)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;
	DLManagedTensor *legacy = NULL;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	tensor->dtype = (struct tidl_dtype){.code = kDLFloat4_e2m1fn, .bits = 4, .lanes = 1};
	tensor->flags = DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED;
	managed = export_new(tensor);
	cr_assert_eq(managed->flags, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
	managed->deleter(managed);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 0, &legacy), TIDL_ERR_DTYPE);
	cr_assert_null(legacy);
	tensor->flags = 0;
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 0, &legacy), 0);
	legacy->deleter(legacy);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}

TT_TEST(export, copy_on_write_is_writable)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensor *legacy = NULL;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_COPY_ON_WRITE, LEASE);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 0, &legacy), 0);
	*(float *)legacy->dl_tensor.data = 1.0f;
	legacy->deleter(legacy);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}

TT_TEST(export, the_last_of_tensor_and_exports_releases)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *first;
	DLManagedTensorVersioned *second;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	first = export_new(tensor);
	second = export_new(tensor);
	cr_assert_neq(first->dl_tensor.shape, second->dl_tensor.shape);
	tidl_tensor_unref(tensor);
	first->deleter(first);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 0);
	((float *)second->dl_tensor.data)[11] = 5.0f;
	cr_assert_eq(second->dl_tensor.shape[1], 4);
	second->deleter(second);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 1);
	cr_assert_eq(released[0], LEASE);
	tt_offline_deinit(&offline);
}

TT_TEST(export, a_second_call_of_the_deleter_does_nothing)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;
	DLManagedTensor *legacy = NULL;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	managed = export_new(tensor);
	cr_assert_eq(tidl_tensor_export_legacy(tensor, 0, &legacy), 0);
	managed->deleter(managed);
	managed->deleter(managed);
	legacy->deleter(legacy);
	legacy->deleter(legacy);
	managed->deleter(managed);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 0, "the tensor lives");
	*(float *)tidl_tensor_data(tensor) = 1.0f;
	tidl_tensor_unref(tensor);
	managed->deleter(managed);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 1);
	tt_offline_deinit(&offline);
}

TT_TEST(export, after_disconnect_the_memory_stays_until_the_deleter)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	managed = export_new(tensor);
	tidl_tensor_unref(tensor);
	tidl_disconnect(offline.client);
	offline.client = NULL;
	((float *)managed->dl_tensor.data)[0] = 3.0f;
	managed->deleter(managed);
	managed->deleter(managed);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 0,
		     "the lease went with the connection");
	tt_offline_deinit(&offline);
}

enum { THREADS = 4, EXPORTS = 200 };

static void *deleting_thread(void *argument)
{
	DLManagedTensorVersioned **exports = argument;

	for (size_t i = 0; i < EXPORTS; i++) {
		exports[i]->deleter(exports[i]);
		exports[i]->deleter(exports[i]);
	}
	return NULL;
}

TT_TEST(export, deleters_in_many_threads_release_each_lease_once)
{
	static DLManagedTensorVersioned *exports[THREADS][EXPORTS];
	struct tt_offline offline;
	pthread_t threads[THREADS];
	size_t count;
	uint64_t sum = 0;

	tt_offline_init(&offline);
	for (size_t i = 0; i < THREADS; i++) {
		for (size_t j = 0; j < EXPORTS; j++) {
			struct tidl_tensor *tensor = tt_offline_tensor(
				&offline, 1, 1, TIDL_ATTACH_WRITE, i * EXPORTS + j + 1);

			exports[i][j] = export_new(tensor);
			tidl_tensor_unref(tensor);
		}
	}
	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, deleting_thread, exports[i]), 0);
	for (size_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_join(threads[i], NULL), 0);
	count = tt_offline_released(&offline, released, CAPACITY);
	/* What the full socket did not take goes with the next dispatch. */
	while (offline.client->outbound.head != NULL) {
		cr_assert_eq(tidl_dispatch(offline.client), 0);
		count += tt_offline_released(&offline, released + count, CAPACITY - count);
	}
	cr_assert_eq(count, THREADS * EXPORTS);
	for (size_t i = 0; i < count; i++)
		sum += released[i];
	cr_assert_eq(sum, (uint64_t)THREADS * EXPORTS * (THREADS * EXPORTS + 1) / 2);
	tt_offline_deinit(&offline);
}

/* In the child: everything works on the inherited memory, and not one byte goes to the broker. */
static int child_main(struct tt_offline *offline, struct tidl_tensor *tensor,
		      DLManagedTensorVersioned *managed)
{
	DLManagedTensorVersioned *own = NULL;

	((float *)managed->dl_tensor.data)[0] = 42.0f;
	managed->deleter(managed);
	managed->deleter(managed);
	if (tidl_tensor_export(tensor, &own) != 0)
		return 1;
	tidl_tensor_unref(tensor);
	own->deleter(own);
	if (offline->client->state != TDC_CLIENT_STATE_FORKED || offline->client->link.fd != -1)
		return 2;
	if (tidl_fd(offline->client) != TIDL_ERR_BROKER_GONE)
		return 3;
	if (tidl_dispatch(offline->client) != 0)
		return 4;
	tidl_disconnect(offline->client);
	return 0;
}

TT_TEST(export, a_forked_child_unmaps_but_never_releases)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	DLManagedTensorVersioned *managed;
	int status;
	pid_t pid;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	managed = export_new(tensor);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(child_main(&offline, tensor, managed));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 0);
	cr_assert_float_eq(((float *)managed->dl_tensor.data)[0], 42.0f, 0.0f);
	managed->deleter(managed);
	tidl_tensor_unref(tensor);
	cr_assert_eq(tt_offline_released(&offline, released, CAPACITY), 1);
	tt_offline_deinit(&offline);
}

/* A fork in the middle of other threads' deleters leaves no lock held in the child. */
static void *churning_thread(void *argument)
{
	struct tt_offline *offline = argument;

	for (int i = 0; i < 300; i++) {
		struct tidl_tensor *tensor =
			tt_offline_tensor(offline, 1, 1, TIDL_ATTACH_WRITE, 1000);
		DLManagedTensorVersioned *managed = NULL;

		if (tidl_tensor_export(tensor, &managed) == 0)
			managed->deleter(managed);
		tidl_tensor_unref(tensor);
	}
	return NULL;
}

TT_TEST(export, fork_while_threads_delete)
{
	struct tt_offline offline;
	struct tidl_tensor *tensor;
	pthread_t thread;
	int status;

	tt_offline_init(&offline);
	tensor = tt_offline_tensor(&offline, 3, 4, TIDL_ATTACH_WRITE, LEASE);
	cr_assert_eq(pthread_create(&thread, NULL, churning_thread, &offline), 0);
	for (int i = 0; i < 20; i++) {
		DLManagedTensorVersioned *managed = export_new(tensor);
		pid_t pid = fork();

		cr_assert_geq(pid, 0);
		if (pid == 0) {
			managed->deleter(managed);
			tidl_tensor_unref(tensor);
			/* Not _exit(), where ThreadSanitizer misses the threads of the parent. */
			(void)syscall(SYS_exit_group, 0);
		}
		managed->deleter(managed);
		cr_assert_eq(waitpid(pid, &status, 0), pid);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
		(void)tt_offline_released(&offline, released, CAPACITY);
	}
	cr_assert_eq(pthread_join(thread, NULL), 0);
	(void)tt_offline_released(&offline, released, CAPACITY);
	tidl_tensor_unref(tensor);
	tt_offline_deinit(&offline);
}
