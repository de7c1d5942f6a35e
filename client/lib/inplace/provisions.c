/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two descriptors (the guard's, and one to see this process's maps) and some maps of nothing, for
 * the whole process while any memory is moved. Knows nothing of that memory.
 */
#include "client/lib/inplace/provisions.h"

#include <stddef.h>
#include <sys/mman.h>

#include "client/lib/inplace/guard.h"
#include "proto/mem/memfd.h"

/* mremap() to a fixed place, which nets at most one map, is refused already seven below the limit,
 * and mmap() may have gone one above it. */
enum { ROOM_MAPS = 10 };

static struct {
	size_t user_count;
	struct tdc_maps_view view;
	void *room; /* ROOM_MAPS maps of a page each; NULL: none */
} provisions = {.view = {.fd = -1}};

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
	(void)!tdc_guard_prepare();
	(void)!tdc_maps_view_open(&provisions.view);
	room_make();
}

static void provisions_drop(void)
{
	tdc_guard_drop();
	tdc_maps_view_close(&provisions.view);
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

struct tdc_maps_view *tdc_provisions_view(int *ret_error)
{
	*ret_error = tdc_maps_view_open(&provisions.view);
	return *ret_error == 0 ? &provisions.view : NULL;
}

void tdc_provisions_look_anew(void)
{
	tdc_maps_view_rewind(&provisions.view);
}

bool tdc_provisions_make_room(void)
{
	void *room = provisions.room;

	provisions.room = NULL;
	return room != NULL && munmap(room, ROOM_MAPS * tdp_page_bytes()) == 0;
}
