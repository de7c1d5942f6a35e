/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two descriptors (the guard's, and one to see this process's maps) and some maps of nothing, for
 * the whole process while any memory is moved. Knows nothing of that memory.
 */
#include "client/lib/inplace/provisions.h"

#include <stddef.h>
#include <sys/mman.h>

#include "client/lib/inplace/guard.h"
#include "client/lib/inplace/maps.h"
#include "proto/base/fd.h"
#include "proto/mem/memfd.h"

/* mremap() to a fixed place, which nets at most one map, is refused already seven below the limit,
 * and mmap() may have gone one above it. */
enum { ROOM_MAPS = 10 };

static struct {
	size_t user_count;
	int maps_fd; /* -1: none */
	void *room;  /* ROOM_MAPS maps of a page each; NULL: none */
} provisions = {.maps_fd = -1};

/* Maps are told apart by their rights. */
static void room_make(void)
{
	size_t page_bytes = tdp_page_bytes();
	unsigned char *room;

	if (provisions.room != NULL)
		return;
	room = mmap(NULL, ROOM_MAPS * page_bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return;
	for (size_t i = 1; i < ROOM_MAPS; i += 2)
		(void)mprotect(room + i * page_bytes, page_bytes, PROT_READ);
	provisions.room = room;
}

static void provisions_get(void)
{
	(void)tdc_guard_prepare();
	(void)tdc_provisions_maps();
	room_make();
}

static void provisions_drop(void)
{
	tdc_guard_drop();
	provisions.maps_fd = tdp_fd_close(provisions.maps_fd);
}

void tdc_provisions_take(void)
{
	provisions.user_count++;
	provisions_get();
}

void tdc_provisions_give_back(void)
{
	if (--provisions.user_count > 0)
		return;
	provisions_drop();
	(void)tdc_provisions_make_room();
}

void tdc_provisions_renew(void)
{
	provisions_drop();
	if (provisions.user_count > 0)
		provisions_get();
}

int tdc_provisions_maps(void)
{
	int fd = provisions.maps_fd >= 0 ? provisions.maps_fd : tdc_maps_open();

	if (fd >= 0)
		provisions.maps_fd = fd;
	return fd;
}

bool tdc_provisions_make_room(void)
{
	void *room = provisions.room;

	provisions.room = NULL;
	return room != NULL && munmap(room, ROOM_MAPS * tdp_page_bytes()) == 0;
}
