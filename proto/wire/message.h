/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_WIRE_MESSAGE_H
#define TDP_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/tidl/admin.h"
#include "include/tidl/publish.h"
#include "include/tidl/tensor.h"
#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/limits.h"

/*
 * The messages as plain structs. Only proto/codec/ knows the generated protobuf types; everybody
 * else works with these. Strings and arrays are borrowed: from the arena after unpacking, from the
 * caller for packing. tidl.proto documents the fields.
 *
 * Unpacking checks what protobuf cannot: enumerations in range, ranks and lengths within limits,
 * strides as many as extents, texts valid UTF-8. It does not check what has a code of its own for
 * the user or needs context: the handlers check names, patterns, layouts against segments, and in a
 * PUBLISH the metadata and the segment indexes.
 */

enum tdp_message_kind {
	TDP_MESSAGE_NONE = 0, /* no body, or one that a newer version added */
	TDP_MESSAGE_HELLO,
	TDP_MESSAGE_WELCOME,
	TDP_MESSAGE_FAILURE,
	TDP_MESSAGE_DONE,
	TDP_MESSAGE_CANCEL,
	TDP_MESSAGE_GET_MORE,
	TDP_MESSAGE_MORE,
	TDP_MESSAGE_ALLOCATE,
	TDP_MESSAGE_ALLOCATED,
	TDP_MESSAGE_PUBLISH,
	TDP_MESSAGE_PUBLISHED,
	TDP_MESSAGE_GET,
	TDP_MESSAGE_GRANTED,
	TDP_MESSAGE_RELEASE,
	TDP_MESSAGE_OPEN,
	TDP_MESSAGE_OPENED,
	TDP_MESSAGE_WATCH_WRITER,
	TDP_MESSAGE_REMOVE,
	TDP_MESSAGE_PIN,
	TDP_MESSAGE_WAIT,
	TDP_MESSAGE_WAITED,
	TDP_MESSAGE_LIST,
	TDP_MESSAGE_LISTING,
	TDP_MESSAGE_INSPECT,
	TDP_MESSAGE_INSPECTION,
	TDP_MESSAGE_SHUTDOWN,
	TDP_MESSAGE_WATCH,
	TDP_MESSAGE_WATCHING,
	TDP_MESSAGE_UNWATCH,
	TDP_MESSAGE_EVENT,
	TDP_MESSAGE_GOODBYE,
	TDP_MESSAGE_UNBUILT, /* in the schema, but not built yet: answered with UNSUPPORTED */
	TDP_MESSAGE_KIND_COUNT
};

enum tdp_segment_kind {
	TDP_SEGMENT_MEMFD = 1,
	TDP_SEGMENT_DEVICE_HANDLE = 2,
	TDP_SEGMENT_DEVICE_CHUNKS = 3,
};

struct tdp_segment {
	enum tdp_segment_kind kind;
	uint64_t id;
	uint64_t size_bytes;
	uint64_t data_offset_bytes;
	uint64_t data_size_bytes;
	uint64_t control_offset_bytes; /* 0: none */
	uint32_t seals;		       /* inspection only */
	uint64_t inode;		       /* inspection only */
	uint64_t huge_bytes;	       /* in huge pages, as its publisher says */
	uint64_t step_word;	       /* inspection only: of the control page (mem/control.h) */
};

/* A mapping of a bundle with nothing in it. */
struct tdp_empty_mapping {
	const char *key;
	uint32_t position; /* of the tensor before which it stands */
};

struct tdp_tensor {
	const char *key;       /* path in a bundle (proto/keys.h); "" for a single tensor */
	int64_t segment_index; /* -1: no memory */
	uint64_t byte_offset;  /* from the segment's start */
	struct tidl_dtype dtype;
	uint32_t ndim;
	const int64_t *shape;	/* ndim */
	const int64_t *strides; /* ndim, never NULL when ndim > 0 */
	uint32_t flags;
};

struct tdp_process {
	uint32_t uid;
	uint32_t gid;
	int64_t pid;
	const char *name; /* never NULL after unpacking */
	const char *command;
	const char *cgroup;
	bool is_connected;
};

struct tdp_hello {
	uint32_t min_version;
	uint32_t max_version;
	uint64_t features;
	const char *client_name;
	const char *command;
	const char *cgroup;
	uint64_t pid_namespace;
	uint64_t ipc_namespace;
	uint64_t dev_shm_device;
};

struct tdp_welcome {
	uint32_t version;
	uint64_t features;
	uint8_t broker_id[TDP_BROKER_ID_BYTES];
	uint64_t epoch;
	const char *server_version;
	uint32_t uid;
	bool is_private;
	uint32_t max_packet_bytes;
	uint32_t max_fds;
	uint64_t max_segment_bytes;
};

struct tdp_failure {
	int code; /* TIDL_ERR_*, negative */
	const char *message;
};

struct tdp_cancel {
	uint64_t request_id;
};

struct tdp_get_more {
	uint64_t cursor;
};

struct tdp_more {
	uint64_t next_cursor; /* 0: these were the last */
	size_t segment_count;
	const struct tdp_segment *segments;
	size_t segment_number_count; /* 0, or as many as segments */
	const uint32_t *segment_numbers;
};

struct tdp_allocate {
	uint64_t data_size_bytes;
};

struct tdp_allocated {
	struct tdp_segment segment;
};

struct tdp_publish {
	const char *name;
	size_t segment_count;
	const struct tdp_segment *segments;
	size_t tensor_count;
	const struct tdp_tensor *tensors;
	enum tidl_access access;
	enum tidl_retention retention; /* TIDL_RETENTION_DEFAULT when absent */
	uint64_t ttl_ms;
	uint32_t mode; /* 0600 when absent */
	bool has_gid;
	uint32_t gid;
	bool replace;
	uint32_t keep;	      /* 1 when absent */
	const char *metadata; /* NULL when absent */
	enum tidl_path path;
	bool expose;
	bool hands_over; /* the allocations of the segments end with this */
	bool is_bundle;
	bool has_manifest; /* no rows here: they are in the descriptor (proto/wire/manifest.h) */
	size_t empty_mapping_count;
	const struct tdp_empty_mapping *empty_mappings;
	bool check_only;   /* answer DONE if it would succeed */
	bool keeps_pooled; /* the segment is wanted back */
	bool has_unbuilt;  /* a field that is not built yet was set */
};

struct tdp_published {
	uint64_t generation;
	enum tidl_retention retention;
	uint64_t exposed_bytes;
	bool survives_restart;
	bool aliases_previous;
	uint64_t replaced_generation;
	size_t returned_count; /* segments that were wanted back */
	const uint64_t *returned_ids;
	size_t dropped_count;
	const uint64_t *dropped_ids;
};

struct tdp_get {
	const char *name;
	bool has_owner;
	uint32_t owner_uid;
	enum tidl_attach attach;
	bool wait;
	uint64_t generation; /* 0: the current one */
	uint64_t newer_than; /* 0: any */
	size_t key_count;    /* 0: all of it */
	const char *const *keys;
};

struct tdp_granted {
	uint64_t lease_id;
	uint32_t owner_uid;
	uint32_t segment_owner_uid;
	uint64_t generation;
	enum tidl_access access;
	enum tidl_attach attach;
	enum tidl_retention retention;
	/* Those whose descriptors are in this packet, behind the manifest's. Without a manifest and
	 * a cursor the tensors' indexes are checked against them; else the receiver does that when
	 * all parts have come. */
	size_t segment_count;
	const struct tdp_segment *segments;
	size_t tensor_count; /* 0 with a manifest */
	const struct tdp_tensor *tensors;
	size_t empty_mapping_count; /* 0 with a manifest */
	const struct tdp_empty_mapping *empty_mappings;
	bool is_bundle; /* found out when unpacking; packing ignores it */
	bool has_manifest;
	size_t segment_number_count;	 /* 0: all segments in order; else as many as segments */
	const uint32_t *segment_numbers; /* in the manifest's list */
	uint64_t next_cursor;		 /* 0: nothing more to come */
	const char *metadata;		 /* NULL: none */
};

struct tdp_release {
	size_t lease_count;
	const uint64_t *lease_ids;
	size_t segment_count;
	const uint64_t *segment_ids;
	size_t inherited_count;
	const uint64_t *inherited_lease_ids;
};

struct tdp_open {
	uint64_t segment_id;
	uint64_t lease_id; /* 0: by the allocation */
};

struct tdp_opened {
	struct tdp_segment segment;
};

struct tdp_watch_writer {
	uint64_t segment_id;
	bool wait;
};

struct tdp_remove {
	const char *name;
	bool has_owner;
	uint32_t owner_uid;
};

struct tdp_pin {
	const char *name;
	bool has_owner;
	uint32_t owner_uid;
	uint64_t generation;
};

struct tdp_wait {
	const char *name;
	bool has_owner;
	uint32_t owner_uid;
	uint64_t newer_than; /* 0: any */
	bool released;
	uint64_t generation; /* 0: the one that is current now */
};

struct tdp_waited {
	uint64_t generation;
	uint32_t owner_uid;
};

struct tdp_list {
	bool any_owner;
	bool has_owner;
	uint32_t owner_uid;
	const char *pattern;
	uint64_t cursor;
};

struct tdp_list_entry {
	uint32_t owner_uid;
	const char *name;
	uint64_t generation;
	enum tidl_access access;
	enum tidl_retention retention;
	uint32_t mode;
	bool is_bundle;
	uint32_t tensor_count;
	struct tidl_dtype dtype; /* all zero when there is no tensor */
	uint32_t ndim;
	const int64_t *shape;
	uint64_t tensor_bytes;
	uint64_t segment_bytes;
	uint32_t holder_count;
	uint64_t age_ms;
	int64_t publisher_pid;
};

struct tdp_listing {
	size_t entry_count;
	const struct tdp_list_entry *entries;
	uint64_t next_cursor; /* 0: last page */
};

struct tdp_inspect {
	const char *name;
	bool has_owner;
	uint32_t owner_uid;
	uint64_t generation;
	uint64_t tensor_cursor;
	uint64_t holder_cursor;
	uint64_t segment_cursor;
};

struct tdp_holder {
	enum tidl_holder_kind kind;
	enum tidl_attach attach;
	uint64_t age_ms;
	uint64_t left_ms; /* of a pin: until it ends */
	struct tdp_process process;
};

struct tdp_inspection {
	uint32_t owner_uid;
	const char *name;
	uint64_t generation;
	enum tidl_access access;
	enum tidl_retention retention;
	enum tidl_path path;
	uint32_t mode;
	uint32_t gid;
	uint64_t age_ms;
	uint64_t exposed_bytes;
	const char *metadata; /* NULL: none */
	struct tdp_process publisher;
	size_t segment_count;
	const struct tdp_segment *segments;
	size_t tensor_count;
	const struct tdp_tensor *tensors;
	size_t holder_count;
	const struct tdp_holder *holders;
	uint64_t next_tensor_cursor; /* 0: last page */
	uint64_t next_holder_cursor;
	uint64_t next_segment_cursor;
	bool is_bundle;
	uint32_t all_tensor_count; /* of the publication; the page has some of them */
	uint32_t all_segment_count;
	bool survives_restart;
	bool is_write_protected;
	bool is_same_uid_write_protected;
	size_t kept_count;
	const uint64_t *kept_generations; /* newest first */
	bool has_left;
	uint64_t left_ms; /* until it ends by itself */
};

enum tdp_event_kind {
	TDP_EVENT_PUBLISHED = 1, /* the name was free */
	TDP_EVENT_REPLACED,
	TDP_EVENT_REMOVED, /* by whom and why ever */
	TDP_EVENT_LEASED,
	TDP_EVENT_RELEASED,
	TDP_EVENT_OWNER_DIED, /* retention OWNER: it ends with the grace period */
	TDP_EVENT_LOST,	      /* events were dropped: look for yourself */
	TDP_EVENT_RECALLED,
	TDP_EVENT_KIND_COUNT
};

/* All that there are, as bits of tdp_watch.kinds. */
#define TDP_EVENT_KINDS_ALL ((1u << TDP_EVENT_KIND_COUNT) - 2)

struct tdp_watch {
	const char *pattern;
	bool any_owner;
	bool has_owner;
	uint32_t owner_uid;
	uint32_t kinds; /* TDP_EVENT_KINDS_ALL when absent */
};

struct tdp_watching {
	uint64_t watch_id;
};

struct tdp_unwatch {
	uint64_t watch_id;
};

struct tdp_event {
	uint64_t watch_id;
	enum tdp_event_kind kind;
	uint32_t owner_uid;
	const char *name; /* of none (LOST): NULL for packing, "" after unpacking */
	uint64_t generation;
	bool has_holder; /* LEASED and RELEASED */
	uint32_t holder_uid;
	int64_t holder_pid;
	enum tidl_attach attach;
};

struct tdp_message {
	enum tdp_message_kind kind;
	uint64_t request_id;
	uint32_t fd_count;
	union {
		struct tdp_hello hello;
		struct tdp_welcome welcome;
		struct tdp_failure failure;
		struct tdp_cancel cancel;
		struct tdp_get_more get_more;
		struct tdp_more more;
		struct tdp_allocate allocate;
		struct tdp_allocated allocated;
		struct tdp_publish publish;
		struct tdp_published published;
		struct tdp_get get;
		struct tdp_granted granted;
		struct tdp_release release;
		struct tdp_open open;
		struct tdp_opened opened;
		struct tdp_watch_writer watch_writer;
		struct tdp_remove remove;
		struct tdp_pin pin;
		struct tdp_wait wait;
		struct tdp_waited waited;
		struct tdp_list list;
		struct tdp_listing listing;
		struct tdp_inspect inspect;
		struct tdp_inspection inspection;
		struct tdp_watch watch;
		struct tdp_watching watching;
		struct tdp_unwatch unwatch;
		struct tdp_event event;
	};
};

/*
 * Unpack one packet. Everything in @ret_message lives in @arena.
 * Returns 0, TIDL_ERR_PROTOCOL (malformed, or a value out of its range, with the reason),
 * TIDL_ERR_NO_MEMORY (beyond the arena's cap). `request_id` is set whenever it could be read.
 */
int tdp_message_unpack(struct tdp_arena *arena, const void *bytes, size_t size_bytes,
		       struct tdp_message *ret_message, struct tdp_fault *fault) TDP_MUST_CHECK;

/*
 * Pack one message. @buffer holds @capacity_bytes, at most TDP_PACKET_MAX_BYTES.
 * Returns 0, TIDL_ERR_LIMIT (would not fit into a packet) or TIDL_ERR_NO_MEMORY.
 */
int tdp_message_pack(const struct tdp_message *message, void *buffer, size_t capacity_bytes,
		     size_t *ret_size_bytes, struct tdp_fault *fault) TDP_MUST_CHECK;

/* "PUBLISH" and the like, for logs. */
const char *tdp_message_name(enum tdp_message_kind kind);

#endif
