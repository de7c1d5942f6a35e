/* SPDX-License-Identifier: Apache-2.0 */
/* Two users on one broker. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/leak.h"
#include "tests/unit/client/support/broker.h"
#include "tests/unit/client/support/foreign.h"

enum { OTHER_UID = 4242 };

static const int64_t shape[] = {2, 3};

/* Not private, since that serves one user only. */
static void shared_broker_start(struct tt_broker *broker)
{
	char command[512];

	if (geteuid() != 0)
		cr_skip_test("only root can become somebody else");
	tt_broker_prepare(broker);
	(void)snprintf(broker->address, sizeof(broker->address), "%s/shared.sock", broker->folder);
	cr_assert_eq(chmod(broker->folder, 0755), 0);
	(void)snprintf(command, sizeof(command), "'%s' --detach --socket %s >/dev/null",
		       getenv("TIDL_DAEMON"), broker->address);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(tt_broker_find(broker), 1);
}

/* Somebody else, who publishes and keeps running until told to end. */
struct neighbour {
	pid_t pid;
	int go_on_fd;
};

static int neighbour_main(const struct tt_broker *broker, uint32_t mode, int ready_fd, int end_fd)
{
	struct tidl_connect_options options = {
		.size = sizeof(options), .address = broker->address, .timeout_ms = 20000};
	struct tidl_publish_options publish = {.size = sizeof(publish), .mode = mode, .expose = 1};
	struct DLManagedTensorVersioned *managed = NULL;
	struct tidl_client *client = NULL;
	struct tidl_tensor *tensor = NULL;
	char byte;

	if (setresuid(OTHER_UID, OTHER_UID, OTHER_UID) < 0)
		return 1;
	if (tidl_connect(&options, &client) != 0)
		return 2;
	if (tidl_empty(client, 2, shape, tt_float32, &tensor) != 0)
		return 3;
	if (tidl_tensor_export(tensor, &managed) != 0 ||
	    tidl_publish(client, "theirs", managed, &publish, NULL) != 0)
		return 4;
	(void)!write(ready_fd, "", 1);
	(void)!read(end_fd, &byte, 1);
	return 0;
}

static void neighbour_start(struct neighbour *neighbour, const struct tt_broker *broker,
			    uint32_t mode)
{
	int ready[2];
	int end[2];
	char byte;

	cr_assert_eq(pipe(ready), 0);
	cr_assert_eq(pipe(end), 0);
	neighbour->pid = fork();
	if (neighbour->pid == 0) {
		close(end[1]);
		_exit(neighbour_main(broker, mode, ready[1], end[0]));
	}
	close(ready[1]);
	close(end[0]);
	neighbour->go_on_fd = end[1];
	cr_assert_eq(read(ready[0], &byte, 1), 1, "the other user could not publish");
	close(ready[0]);
}

static void neighbour_end(const struct neighbour *neighbour)
{
	int status;

	close(neighbour->go_on_fd);
	cr_assert_eq(waitpid(neighbour->pid, &status, 0), neighbour->pid);
	cr_assert_eq(status, 0);
}

TT_TEST(rights, memory_of_another_user_is_copied, .timeout = 60)
{
	struct tt_broker broker;
	struct neighbour neighbour;
	struct tidl_client *client;
	struct tidl_tensor *theirs;
	struct tidl_publication publication = {.size = sizeof(publication)};
	struct tidl_publish_options in_place = {.size = sizeof(in_place), .copy = TIDL_COPY_NEVER};
	struct tt_foreign foreign;

	shared_broker_start(&broker);
	neighbour_start(&neighbour, &broker, 0666);
	client = tt_broker_connect(&broker);
	theirs = tt_get(client, "4242:theirs", TIDL_ATTACH_WRITE);
	cr_assert_eq(tidl_tensor_owner_uid(theirs), OTHER_UID);
	tt_foreign_init(&foreign, tidl_tensor_data(theirs), 2, shape, NULL);
	cr_expect_eq(tidl_publish(client, "mine", &foreign.managed, &in_place, NULL),
		     TIDL_ERR_COPY_NEEDED);
	cr_expect_eq(tidl_last_copy_reason(), TIDL_COPY_REASON_NOT_OWNER, "%s", tidl_last_error());
	cr_expect_eq(foreign.deleted, 0);
	cr_assert_eq(tidl_publish(client, "mine", &foreign.managed, NULL, &publication), 0, "%s",
		     tidl_last_error());
	cr_assert_eq(publication.path, TIDL_PATH_COPIED);
	cr_assert_eq(publication.reason, TIDL_COPY_REASON_NOT_OWNER);
	tidl_tensor_unref(theirs);
	tidl_disconnect(client);
	neighbour_end(&neighbour);
	tt_broker_stop(&broker);
}

static int stranger_main(const struct tt_broker *broker)
{
	struct tidl_connect_options options = {
		.size = sizeof(options), .address = broker->address, .timeout_ms = 20000};
	struct tidl_get_options write = {.size = sizeof(write), .attach = TIDL_ATTACH_WRITE};
	struct tidl_client *client = NULL;
	struct tidl_tensor *tensor = NULL;

	if (setresuid(OTHER_UID + 1, OTHER_UID + 1, OTHER_UID + 1) < 0)
		return 1;
	if (tidl_connect(&options, &client) != 0)
		return 2;
	if (tidl_get(client, "4242:theirs", &write, &tensor) != TIDL_ERR_PERMISSION)
		return 3;
	if (tidl_get(client, "4242:theirs", NULL, &tensor) != 0)
		return 4;
	tidl_tensor_unref(tensor);
	if (tidl_get(client, "4242:hidden", NULL, &tensor) != TIDL_ERR_NOT_FOUND)
		return 5;
	if (tidl_remove(client, "4242:theirs") != TIDL_ERR_PERMISSION)
		return 6;
	if (tidl_shutdown(client) != TIDL_ERR_PERMISSION)
		return 7;
	tidl_disconnect(client);
	return 0;
}

TT_TEST(rights, mode_bits_hold, .timeout = 60)
{
	struct tt_broker broker;
	struct neighbour neighbour;
	pid_t pid;
	int status;

	shared_broker_start(&broker);
	neighbour_start(&neighbour, &broker, 0644);
	pid = fork();
	if (pid == 0)
		_exit(stranger_main(&broker));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
	neighbour_end(&neighbour);
	tt_broker_stop(&broker);
}
