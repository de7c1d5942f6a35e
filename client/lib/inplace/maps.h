/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_MAPS_H
#define TDC_INPLACE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "include/tidl/publish.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* One mapping of this process, as the kernel tells it. */
struct tdc_map {
	uintptr_t begin;
	uintptr_t end;
	uint64_t offset_bytes;
	dev_t device;
	ino_t inode; /* 0: no file */
	bool is_writable;
	bool is_shared;
	bool is_hugetlb;
	bool is_special; /* the kernel's own, or the stack */
	bool is_heap;	 /* what brk() made */
	bool is_locked;	 /* by mlock() */
};

/* All of them at one moment, sorted. */
struct tdc_maps {
	size_t count;
	size_t capacity;
	struct tdc_map *maps;
};

/* Read them. Costs some microseconds for a small process and a millisecond for thousands of maps.
 */
int tdc_maps_load(struct tdc_maps *maps, struct tdp_fault *fault) TDP_MUST_CHECK;
void tdc_maps_deinit(struct tdc_maps *maps);

/* More than a line with the longest path. */
enum { TDC_MAPS_TEXT_BYTES = 8192 };

/* To look at some of them without memory. */
struct tdc_maps_view {
	int fd; /* -1: not open. It shows those of the process that has opened it */
	off_t offset;
	uintptr_t position; /* of the last look's begin */
	size_t length;
	char text[TDC_MAPS_TEXT_BYTES + 1]; /* read, and not needed so far */
};

/* 0 or an errno. */
int tdc_maps_view_open(struct tdc_maps_view *view) TDP_MUST_CHECK;
void tdc_maps_view_close(struct tdc_maps_view *view);

/* The next look starts anew, so that it sees what has changed. */
void tdc_maps_view_rewind(struct tdc_maps_view *view);

/*
 * Those that lie in [@begin, @end), at least in part. Ascending looks read everything once
 * together. @maps has room for `capacity` of them, TIDL_ERR_LIMIT when there are more. Does not
 * tell what is locked.
 */
int tdc_maps_look(struct tdc_maps_view *view, uintptr_t begin, uintptr_t end, struct tdc_maps *maps,
		  struct tdp_fault *fault) TDP_MUST_CHECK;

/* Is all of [@begin, @end) private anonymous memory that can be written, and may its pages be
 * exchanged? NONE, or the reason why not. */
enum tidl_copy_reason tdc_maps_refusal(const struct tdc_maps *maps, uintptr_t begin, uintptr_t end);

/* How many bytes of [@begin, @end), from @begin on, show this file, from its offset on, and shared
 * or not as it does? */
size_t tdc_maps_file_bytes(const struct tdc_maps *maps, uintptr_t begin, uintptr_t end,
			   const struct tdc_map *file);

/* Does a map end there? */
bool tdc_maps_have_edge(const struct tdc_maps *maps, uintptr_t address);

#endif
