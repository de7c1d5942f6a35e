/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits is a list in order of arrival. Nobody is charged for it any more, so memory may be a
 * few milliseconds late; descriptors are not, since each new segment closes more of them first than
 * it opens.
 */
#include "daemon/closer.h"

#include <stdlib.h>
#include <utlist.h>

#include "daemon/disposal.h"
#include "daemon/limits.h"
#include "proto/base/fd.h"
#include "proto/wire/fdset.h"

struct closing {
	int write_fd;
	int read_fd;
	uint64_t size_bytes;
	struct closing *prev, *next;
};

static struct closing *waiting;
static unsigned left_this_turn = TDD_CLOSES_PER_TURN;

static void close_here(const struct closing *closing)
{
	tdp_fd_close(closing->write_fd);
	tdp_fd_close(closing->read_fd);
}

static void close_elsewhere(const struct closing *closing)
{
	struct tdp_fdset fds;

	tdp_fdset_init(&fds);
	if (closing->write_fd >= 0)
		fds.fds[fds.count++] = closing->write_fd;
	if (closing->read_fd >= 0)
		fds.fds[fds.count++] = closing->read_fd;
	tdd_disposal_take(TDD_DISPOSAL_NOBODY, &fds);
}

static void close_now(const struct closing *closing)
{
	if (closing->size_bytes >= TDD_LARGE_CLOSE_BYTES)
		close_elsewhere(closing);
	else
		close_here(closing);
}

static void take_first(void (*how)(const struct closing *closing))
{
	struct closing *closing = waiting;

	DL_DELETE(waiting, closing);
	how(closing);
	free(closing);
}

void tdd_closer_take(int write_fd, int read_fd, uint64_t size_bytes)
{
	struct closing late = {.write_fd = write_fd, .read_fd = read_fd, .size_bytes = size_bytes};
	struct closing *closing = NULL;

	if (write_fd < 0 && read_fd < 0)
		return;
	if (left_this_turn > 0)
		left_this_turn--;
	else
		closing = malloc(sizeof(*closing));
	/* Without memory to remember it, it is closed now, too. */
	if (!closing) {
		close_now(&late);
		return;
	}
	*closing = late;
	DL_APPEND(waiting, closing);
}

void tdd_closer_make_room(void)
{
	for (int i = 0; i < TDD_CLOSES_PER_SEGMENT && waiting; i++)
		take_first(close_now);
}

bool tdd_closer_turn(void)
{
	for (left_this_turn = TDD_CLOSES_PER_TURN; left_this_turn > 0 && waiting; left_this_turn--)
		take_first(close_now);
	return waiting != NULL;
}

void tdd_closer_finish(void)
{
	while (waiting)
		take_first(close_here);
	left_this_turn = TDD_CLOSES_PER_TURN;
}
