/* SPDX-License-Identifier: Apache-2.0 */
/* The writing process of tests about steps. */
#include "tests/unit/client/support/stepping.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <dlpack/dlpack.h>

enum { CELLS = 512 };

static struct tidl_tensor *stepper_tensor(const struct tt_stepper *stepper,
					  struct tidl_client *client)
{
	static const int64_t shape[] = {CELLS};
	struct tidl_get_options options = {
		.size = sizeof(options), .attach = TIDL_ATTACH_WRITE, .timeout_ms = -1};
	struct DLManagedTensorVersioned *managed = NULL;
	struct tidl_tensor *tensor = NULL;

	if (stepper->attaches) {
		if (tidl_get(client, stepper->name, &options, &tensor) != 0)
			_exit(10);
		return tensor;
	}
	if (tidl_empty(client, 1, shape, tt_float32, &tensor) != 0 ||
	    tidl_tensor_export(tensor, &managed) != 0 ||
	    tidl_publish(client, stepper->name, managed, NULL, NULL) != 0)
		_exit(11);
	return tensor;
}

/* One step; every element says which. */
static void stepper_step(struct tidl_tensor *tensor, uint64_t step)
{
	_Atomic float *cells = tidl_tensor_data(tensor);

	if (tidl_update_begin(tensor, 0) != 0)
		_exit(12);
	for (size_t i = 0; i < CELLS; i++)
		cells[i] = (float)(step + 1);
	if (tidl_update_end(tensor, NULL) != 0)
		_exit(13);
}

static void stepper_run(const struct tt_stepper *stepper)
{
	struct tidl_client *client = tt_broker_connect(stepper->broker);
	struct tidl_tensor *tensor = stepper_tensor(stepper, client);
	uint64_t step = stepper->turn_of;

	for (uint64_t i = 0; i < stepper->step_count; i++) {
		if (stepper->turns > 0 && tidl_wait_step(tensor, step, -1, NULL) != 0)
			_exit(14);
		stepper_step(tensor, step);
		step += stepper->turns > 0 ? stepper->turns : 1;
	}
	if (stepper->ends_within) {
		if (tidl_update_begin(tensor, 0) != 0)
			_exit(15);
		for (;;)
			pause();
	}
	_exit(0);
}

pid_t tt_stepper_start(const struct tt_stepper *stepper)
{
	pid_t pid = fork();

	cr_assert_geq(pid, 0);
	if (pid == 0) {
		/* A test that fails leaves no process behind. */
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		stepper_run(stepper);
	}
	return pid;
}

void tt_stepper_join(pid_t pid)
{
	int status;

	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

void tt_stepper_kill(pid_t pid)
{
	int status;

	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status), "it ended before with %d", WEXITSTATUS(status));
}

struct tidl_tensor *tt_get_waiting(struct tidl_client *client, const char *name,
				   enum tidl_attach attach)
{
	struct tidl_get_options options = {
		.size = sizeof(options), .attach = attach, .timeout_ms = -1};
	struct tidl_tensor *tensor = NULL;

	cr_assert_eq(tidl_get(client, name, &options, &tensor), 0, "%s", tidl_last_error());
	return tensor;
}

uint64_t tt_step(struct tidl_tensor *tensor)
{
	uint64_t step = UINT64_MAX;

	cr_assert_eq(tidl_step(tensor, &step), 0, "%s", tidl_last_error());
	return step;
}
