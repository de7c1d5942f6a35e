/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_ADMIN_H
#define TIDL_ADMIN_H

#include <stddef.h>
#include <stdint.h>

#include <tidl/client.h>
#include <tidl/export.h>
#include <tidl/publish.h>
#include <tidl/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The records below belong to the listing or inspection they came from and are read through
 * pointers only: later versions append fields, so never copy or embed them.
 */

/* A process with a connection, as the kernel and the process itself describe it. */
struct tidl_process {
	uint32_t uid;	     /* kernel's word */
	uint32_t gid;	     /* kernel's word */
	int64_t pid;	     /* kernel's word, in the broker's pid namespace; 0: outside it */
	const char *name;    /* client name, self-reported */
	const char *command; /* command line, self-reported, may be cut */
	const char *cgroup;  /* self-reported; "" if unknown */
	int is_connected;    /* non-zero: still connected */
};

/* One line of a listing. */
struct tidl_list_entry {
	uint32_t owner_uid;
	const char *name;
	uint64_t generation;
	enum tidl_access access;
	enum tidl_retention retention;
	uint32_t mode;		 /* permission bits */
	uint32_t tensor_count;	 /* 1 for a single tensor */
	struct tidl_dtype dtype; /* of the first tensor; all zero if there is none */
	uint32_t ndim;		 /* of the first tensor */
	const int64_t *shape;	 /* of the first tensor, elements */
	uint64_t tensor_bytes;	 /* sum over tensors: elements x element size */
	uint64_t segment_bytes;	 /* sum over segments, as charged */
	uint32_t holder_count;	 /* leases and allocations */
	uint64_t age_ms;	 /* since publishing */
	int64_t publisher_pid;
	int is_bundle; /* non-zero: its tensors have keys; there may be one, or none */
};

struct tidl_listing;

/*
 * tidl_list - what is published, as far as the caller may read it, oldest first.
 *
 * @pattern  `*` matches within a path segment, `**` across them; without `:` the caller's own
 *           namespace, `alice:*` alice's, `*:**` everything. NULL: the same as `**`
 *
 * Free with tidl_listing_free(). Returns 0 or TIDL_ERR_NAME_INVALID, _NO_MEMORY or a connection
 * error. One round trip for each 64 names, and for each 1,024 that do not match. What is
 * published or removed meanwhile may be in it or not; a name that is replaced meanwhile comes once,
 * with its newest generation. The functions that read a listing take no NULL.
 */
TIDL_API int tidl_list(struct tidl_client *client, const char *pattern,
		       struct tidl_listing **ret_listing);
TIDL_API size_t tidl_listing_count(const struct tidl_listing *listing);
TIDL_API const struct tidl_list_entry *tidl_listing_entry(const struct tidl_listing *listing,
							  size_t index);
/* NULL is allowed. */
TIDL_API void tidl_listing_free(struct tidl_listing *listing);

enum tidl_holder_kind {
	TIDL_HOLDER_LEASE = 1,	    /* attached it by name */
	TIDL_HOLDER_ALLOCATION = 2, /* allocated its memory and still has it mapped */
	TIDL_HOLDER_PIN = 3	    /* keeps it for a tensor that is being handed over */
};

/* Somebody who keeps the memory alive. */
struct tidl_holder {
	enum tidl_holder_kind kind;
	enum tidl_attach attach; /* an allocation is always TIDL_ATTACH_WRITE */
	uint64_t age_ms;
	struct tidl_process process;
	uint64_t left_ms; /* of a pin: until it ends */
};

/* One segment of a publication. */
struct tidl_segment_info {
	uint64_t id;
	uint64_t size_bytes; /* as charged, control page included */
	uint64_t data_offset_bytes;
	uint64_t data_size_bytes; /* exposed: what a reader can reach */
	uint32_t seals;		  /* F_SEAL_* bits read from the kernel by the broker, just now */
	uint64_t inode;		  /* of the memfd, as in /proc/PID/maps */
	uint64_t huge_bytes;	  /* of the data in huge pages, as the publisher has it mapped */
	uint64_t step;		  /* complete steps (step.h), as its writers count them */
	int is_updating;	  /* non-zero: an update is open just now, or was left open */
};

/* One tensor of a publication. */
struct tidl_tensor_info {
	const char *key;       /* path inside a bundle; "" for a single tensor */
	int64_t segment_index; /* -1: no memory */
	uint64_t byte_offset;  /* of the first element from the segment's start */
	struct tidl_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;	/* elements */
	const int64_t *strides; /* elements */
	uint64_t nbytes;	/* elements x element size */
};

struct tidl_inspection;

/* The head of an inspection. */
struct tidl_inspect_info {
	uint32_t owner_uid;
	const char *name;
	uint64_t generation;
	enum tidl_access access;
	enum tidl_retention retention;
	enum tidl_path path;
	uint32_t mode;
	uint32_t group;
	uint64_t age_ms;
	uint64_t exposed_bytes;
	int survives_restart;
	int is_write_protected;		 /* non-zero: other uids cannot write without a grant */
	int is_same_uid_write_protected; /* non-zero: not even processes of the broker's own uid can
					  */
	const char *metadata;		 /* JSON or NULL */
	struct tidl_process publisher;
	size_t segment_count;
	size_t tensor_count;
	size_t holder_count;
	int is_bundle;	 /* non-zero: its tensors have keys; there may be one, or none */
	int64_t left_ms; /* until it ends by itself (seconds to live, a dead owner); -1: never */
	size_t kept_count;
	/* Replaced ones that can still be had by number, newest first. */
	const uint64_t *kept_generations;
};

/*
 * tidl_inspect - everything about one name: owner, holders, layout, seals.
 * One round trip for each 48 holders, 24 segments or 16 tensors, whichever takes most. A name that
 * is replaced meanwhile is looked at anew, a few times. Free with tidl_inspection_free(). Errors as
 * for tidl_list(), TIDL_ERR_NOT_FOUND, and TIDL_ERR_GENERATION_GONE for a name that is replaced
 * again and again. The functions that read an inspection take no NULL.
 */
TIDL_API int tidl_inspect(struct tidl_client *client, const char *name,
			  struct tidl_inspection **ret_inspection);
TIDL_API const struct tidl_inspect_info *tidl_inspection_info(const struct tidl_inspection *i);
TIDL_API const struct tidl_segment_info *tidl_inspection_segment(const struct tidl_inspection *i,
								 size_t index);
TIDL_API const struct tidl_tensor_info *tidl_inspection_tensor(const struct tidl_inspection *i,
							       size_t index);
TIDL_API const struct tidl_holder *tidl_inspection_holder(const struct tidl_inspection *i,
							  size_t index);
/* NULL is allowed. */
TIDL_API void tidl_inspection_free(struct tidl_inspection *inspection);

/*
 * tidl_shutdown - ask the broker to stop. Its own uid and root may. Holders keep their memory.
 * Returns 0 once the broker has agreed, or TIDL_ERR_PERMISSION or a connection error.
 */
TIDL_API int tidl_shutdown(struct tidl_client *client);

#ifdef __cplusplus
}
#endif

#endif
