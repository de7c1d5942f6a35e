/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of this process. Read from /proc/self/maps, since no system call before Linux 6.11
 * tells; smaps, which takes far longer, only where memory is locked. Owned by whoever asked; a
 * snapshot, which the next mmap() of any thread makes old.
 */
#include "client/lib/inplace/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/base/fd.h"

enum { READ_STEP_BYTES = 1 << 16, MAPS_FIRST_CAPACITY = 256 };

static int text_read(const char *path, char **ret_text, struct tdp_fault *fault)
{
	size_t capacity = READ_STEP_BYTES;
	size_t length = 0;
	char *text = NULL;
	tdp_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = -1;

	if (fd < 0)
		return tdp_fault_errno(fault, errno, "cannot read %s", path);
	do {
		char *grown = realloc(text, capacity + 1);

		if (grown == NULL) {
			free(text);
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		}
		text = grown;
		count = read(fd, text + length, capacity - length);
		if (count > 0)
			length += (size_t)count;
		if (length == capacity)
			capacity *= 2;
	} while (count > 0 || (count < 0 && errno == EINTR));
	if (count < 0) {
		int error = errno;

		free(text);
		return tdp_fault_errno(fault, error, "cannot read %s", path);
	}
	text[length] = '\0';
	*ret_text = text;
	return 0;
}

static unsigned long long number_parse(const char **position, int base, char *ret_next)
{
	char *end;
	unsigned long long number = strtoull(*position, &end, base);

	*ret_next = '\0';
	if (end != *position)
		*ret_next = *end;
	*position = *end != '\0' ? end + 1 : end;
	return number;
}

static void map_parse_rest(const char *name, const char *rights, struct tdc_map *map)
{
	map->is_writable = rights[1] == 'w';
	map->is_shared = rights[3] == 's';
	map->is_hugetlb = strncmp(name, "/anon_hugepage", 14) == 0;
	map->is_heap = strncmp(name, "[heap]", 6) == 0;
	/* Names that were given with prctl() begin with "[anon:". */
	map->is_special = name[0] == '[' && strncmp(name, "[anon:", 6) != 0;
}

/* A line of maps, such as "7f00-7f10 rw-p 00000000 00:01 1234   /memfd:x"; false for the lines that
 * smaps has in between. */
static bool map_parse(const char *line, struct tdc_map *ret_map)
{
	const char *position = line;
	struct tdc_map map = {.begin = 0};
	unsigned int major_number;
	const char *rights;
	char next;

	map.begin = number_parse(&position, 16, &next);
	if (next != '-')
		return false;
	map.end = number_parse(&position, 16, &next);
	if (next != ' ' || strnlen(position, 5) < 5)
		return false;
	rights = position;
	position += 5;
	map.offset_bytes = number_parse(&position, 16, &next);
	major_number = (unsigned int)number_parse(&position, 16, &next);
	if (next != ':')
		return false;
	map.device = makedev(major_number, (unsigned int)number_parse(&position, 16, &next));
	map.inode = number_parse(&position, 10, &next);
	map_parse_rest(position + strspn(position, " "), rights, &map);
	*ret_map = map;
	return true;
}

static int maps_add(struct tdc_maps *maps, const struct tdc_map *map, struct tdp_fault *fault)
{
	size_t wanted = maps->capacity > 0 ? 2 * maps->capacity : MAPS_FIRST_CAPACITY;
	struct tdc_map *grown;

	if (maps->count == maps->capacity) {
		grown = reallocarray(maps->maps, wanted, sizeof(*grown));
		if (grown == NULL)
			return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
		maps->maps = grown;
		maps->capacity = wanted;
	}
	maps->maps[maps->count++] = *map;
	return 0;
}

static bool flags_have_locked(const char *line)
{
	return strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " lo") != NULL;
}

static int maps_parse(struct tdc_maps *maps, char *text, struct tdp_fault *fault)
{
	char *rest = NULL;
	struct tdc_map map;
	int r = 0;

	for (char *line = strtok_r(text, "\n", &rest); line != NULL && r == 0;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (map_parse(line, &map))
			r = maps_add(maps, &map, fault);
		else if (maps->count > 0 && flags_have_locked(line))
			maps->maps[maps->count - 1].is_locked = true;
	}
	return r;
}

/* Does this process have locked memory at all? */
static bool process_has_locked(void)
{
	struct tdp_fault unused;
	unsigned long long locked_kib = 0;
	char *text;
	const char *line;

	if (text_read("/proc/self/status", &text, &unused) < 0)
		return true;
	line = strstr(text, "VmLck:");
	if (line != NULL)
		locked_kib = strtoull(line + 6, NULL, 10);
	free(text);
	return locked_kib > 0;
}

int tdc_maps_load(struct tdc_maps *maps, struct tdp_fault *fault)
{
	const char *path = process_has_locked() ? "/proc/self/smaps" : "/proc/self/maps";
	char *text;
	int r = text_read(path, &text, fault);

	if (r < 0)
		return r;
	memset(maps, 0, sizeof(*maps));
	r = maps_parse(maps, text, fault);
	free(text);
	if (r < 0)
		tdc_maps_deinit(maps);
	return r;
}

void tdc_maps_deinit(struct tdc_maps *maps)
{
	free(maps->maps);
	memset(maps, 0, sizeof(*maps));
}

int tdc_maps_view_open(struct tdc_maps_view *view)
{
	if (view->fd < 0)
		view->fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	return view->fd < 0 ? errno : 0;
}

void tdc_maps_view_close(struct tdc_maps_view *view)
{
	view->fd = tdp_fd_close(view->fd);
	tdc_maps_view_rewind(view);
}

void tdc_maps_view_rewind(struct tdc_maps_view *view)
{
	view->offset = 0;
	view->position = 0;
	view->length = 0;
}

/* Lines that are complete. 1 when all maps that matter have come, 0, or a fault's code. What goes
 * on behind @end, or lies there, stays for the next look. */
static int view_parse(struct tdc_maps_view *view, uintptr_t begin, uintptr_t end,
		      struct tdc_maps *maps, struct tdp_fault *fault)
{
	char *line = view->text;
	struct tdc_map map;
	char *line_end;
	int r = 0;

	view->text[view->length] = '\0';
	for (; r == 0 && (line_end = strchr(line, '\n')) != NULL; line = line_end + 1) {
		bool is_map = map_parse(line, &map) && map.end > begin;

		if (is_map && map.begin >= end)
			r = 1;
		else if (is_map && maps->count == maps->capacity)
			r = tdp_fault_set(fault, TIDL_ERR_LIMIT,
					  "the memory has been cut into more than %zu maps",
					  maps->capacity);
		else if (is_map)
			maps->maps[maps->count++] = map;
		if (is_map && map.end > end)
			r = 1;
		if (r != 0)
			break;
	}
	view->length -= (size_t)(line - view->text);
	memmove(view->text, line, view->length);
	return r;
}

int tdc_maps_look(struct tdc_maps_view *view, uintptr_t begin, uintptr_t end, struct tdc_maps *maps,
		  struct tdp_fault *fault)
{
	ssize_t count = 1;
	int r = 0;

	maps->count = 0;
	if (begin < view->position)
		tdc_maps_view_rewind(view);
	view->position = begin;
	while (r == 0 && count > 0) {
		r = view_parse(view, begin, end, maps, fault);
		if (r != 0)
			break;
		count = pread(view->fd, view->text + view->length,
			      TDC_MAPS_TEXT_BYTES - view->length, view->offset);
		if (count < 0)
			return tdp_fault_errno(fault, errno, "cannot read /proc/self/maps");
		view->offset += count;
		view->length += (size_t)count;
	}
	return r < 0 ? r : 0;
}

/* The first map that ends behind @address. */
static size_t maps_find(const struct tdc_maps *maps, uintptr_t address)
{
	size_t low = 0;
	size_t high = maps->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (maps->maps[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum tidl_copy_reason map_refusal(const struct tdc_map *map)
{
	if (map->is_hugetlb)
		return TIDL_COPY_REASON_HUGETLB;
	if (map->is_heap)
		return TIDL_COPY_REASON_HEAP;
	if (map->is_shared || map->inode != 0 || map->is_special)
		return TIDL_COPY_REASON_MAPPING;
	if (!map->is_writable)
		return TIDL_COPY_REASON_NOT_WRITABLE;
	return map->is_locked ? TIDL_COPY_REASON_PINNED : TIDL_COPY_REASON_NONE;
}

enum tidl_copy_reason tdc_maps_refusal(const struct tdc_maps *maps, uintptr_t begin, uintptr_t end)
{
	for (size_t i = maps_find(maps, begin); begin < end; i++) {
		enum tidl_copy_reason reason;

		if (i == maps->count || maps->maps[i].begin > begin)
			return TIDL_COPY_REASON_MAPPING;
		reason = map_refusal(&maps->maps[i]);
		if (reason != TIDL_COPY_REASON_NONE)
			return reason;
		begin = maps->maps[i].end;
	}
	return TIDL_COPY_REASON_NONE;
}

size_t tdc_maps_file_bytes(const struct tdc_maps *maps, uintptr_t begin, uintptr_t end,
			   const struct tdc_map *file)
{
	uintptr_t position = begin;

	for (size_t i = maps_find(maps, begin); position < end; i++) {
		const struct tdc_map *map = &maps->maps[i];

		if (i == maps->count || map->begin > position ||
		    map->is_shared != file->is_shared || map->inode != file->inode ||
		    map->device != file->device ||
		    map->offset_bytes + (position - map->begin) !=
			    file->offset_bytes + (position - begin))
			break;
		position = map->end;
	}
	return position < end ? position - begin : end - begin;
}

bool tdc_maps_have_edge(const struct tdc_maps *maps, uintptr_t address)
{
	size_t i = maps_find(maps, address - 1);

	return i < maps->count && maps->maps[i].end == address;
}
