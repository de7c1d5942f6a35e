/* SPDX-License-Identifier: Apache-2.0 */
/* Words for codes and enumerations: stable, lower case, part of the interface. */
#include "include/tidl/error.h"
#include "include/tidl/publish.h"
#include "include/tidl/tensor.h"
#include "include/tidl/watch.h"
#include "proto/base/fault.h"
#include "proto/tensor/dtype.h"

#include <tidl/version.h>

static const char unknown_word[] = "unknown";

const char *tidl_version(void)
{
	return TIDL_VERSION;
}

const char *tidl_error_name(int code)
{
	return tdp_error_name(code);
}

const char *tidl_error_text(int code)
{
	return tdp_error_text(code);
}

const char *tidl_access_name(enum tidl_access access)
{
	switch (access) {
	case TIDL_ACCESS_SHARED:
		return "shared";
	case TIDL_ACCESS_LIVE:
		return "live";
	case TIDL_ACCESS_IMMUTABLE:
		return "immutable";
	}
	return unknown_word;
}

const char *tidl_attach_name(enum tidl_attach attach)
{
	switch (attach) {
	case TIDL_ATTACH_READ:
		return "read";
	case TIDL_ATTACH_WRITE:
		return "write";
	case TIDL_ATTACH_COPY_ON_WRITE:
		return "copy_on_write";
	}
	return unknown_word;
}

const char *tidl_retention_name(enum tidl_retention retention)
{
	switch (retention) {
	case TIDL_RETENTION_DEFAULT:
		return "default";
	case TIDL_RETENTION_PERSIST:
		return "persist";
	case TIDL_RETENTION_OWNER:
		return "owner";
	case TIDL_RETENTION_SECONDS:
		return "seconds";
	case TIDL_RETENTION_UNTIL_IDLE:
		return "until-idle";
	}
	return unknown_word;
}

const char *tidl_event_kind_name(enum tidl_event_kind kind)
{
	switch (kind) {
	case TIDL_EVENT_PUBLISHED:
		return "published";
	case TIDL_EVENT_REPLACED:
		return "replaced";
	case TIDL_EVENT_REMOVED:
		return "removed";
	case TIDL_EVENT_LEASED:
		return "leased";
	case TIDL_EVENT_RELEASED:
		return "released";
	case TIDL_EVENT_OWNER_DIED:
		return "owner_died";
	case TIDL_EVENT_LOST:
		return "lost";
	case TIDL_EVENT_RECALLED:
		return "recalled";
	}
	return unknown_word;
}

const char *tidl_path_name(enum tidl_path path)
{
	switch (path) {
	case TIDL_PATH_ALLOCATED:
		return "allocated";
	case TIDL_PATH_ATTACHED:
		return "attached";
	case TIDL_PATH_COPIED:
		return "copied";
	case TIDL_PATH_IN_PLACE:
		return "in-place";
	case TIDL_PATH_EMPTY:
		return "empty";
	}
	return unknown_word;
}

const char *tidl_copy_reason_name(enum tidl_copy_reason reason)
{
	switch (reason) {
	case TIDL_COPY_REASON_NONE:
		return "none";
	case TIDL_COPY_REASON_REQUESTED:
		return "requested";
	case TIDL_COPY_REASON_FOREIGN:
		return "foreign";
	case TIDL_COPY_REASON_NOT_OWNER:
		return "not_owner";
	case TIDL_COPY_REASON_PRIVATE_MAP:
		return "private_map";
	case TIDL_COPY_REASON_OTHER_BROKER:
		return "other_broker";
	case TIDL_COPY_REASON_SMALL:
		return "small";
	case TIDL_COPY_REASON_HEAP:
		return "heap";
	case TIDL_COPY_REASON_POOL:
		return "pool";
	case TIDL_COPY_REASON_ALLOCATOR:
		return "allocator";
	case TIDL_COPY_REASON_MAPPING:
		return "mapping";
	case TIDL_COPY_REASON_NOT_WRITABLE:
		return "not_writable";
	case TIDL_COPY_REASON_HUGETLB:
		return "hugetlb";
	case TIDL_COPY_REASON_PINNED:
		return "pinned";
	case TIDL_COPY_REASON_GUARD:
		return "guard";
	case TIDL_COPY_REASON_UNSURE:
		return "unsure";
	}
	return unknown_word;
}

const char *tidl_dtype_name(struct tidl_dtype dtype, char *buffer, size_t size)
{
	return tdp_dtype_name(dtype, buffer, size);
}
