/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libtidl without a broker: fixed records, among them what no honest broker would pass on.
 * Linked with tidlctl's objects it makes every byte of the output predictable.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidl/tidl.h>

#define HOSTILE                                                                                    \
	"evil\x1b[2J\x07\x7f\xc2\x9b"                                                              \
	"31m\xe2\x80\xae\nline\ttab\xff"

struct tidl_client {
	int unused;
};

/* Nothing of these is ever allocated: the pointers only tell that there is a result. */
struct tidl_listing {
	int is_empty;
};

struct tidl_inspection {
	const char *name;
};

static struct tidl_client the_client;
static const int64_t shape_matrix[] = {8, 4};
static const int64_t strides_matrix[] = {1, 8};
static const int64_t shape_vector[] = {5};
static const int64_t strides_vector[] = {-1};

static const struct tidl_list_entry entries[] = {
	{
		.owner_uid = 4000000001,
		.name = "demo/x",
		.generation = 1,
		.access = TIDL_ACCESS_SHARED,
		.retention = TIDL_RETENTION_UNTIL_IDLE,
		.mode = 0600,
		.tensor_count = 1,
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.ndim = 2,
		.shape = shape_matrix,
		.tensor_bytes = 128,
		.segment_bytes = 8192,
		.holder_count = 2,
		.age_ms = 3999,
		.publisher_pid = 4711,
	},
	{
		.owner_uid = 4000000002,
		.name = "\xe9\x87\x8d\xe3\x81\xbf/\xc3\xa9",
		.generation = 12345678901234567ull,
		.access = TIDL_ACCESS_SHARED,
		.retention = TIDL_RETENTION_OWNER,
		.mode = 0664,
		.tensor_count = 1,
		.dtype = {.code = 1, .bits = 8, .lanes = 1},
		.ndim = 1,
		.shape = shape_vector,
		.tensor_bytes = 5,
		.segment_bytes = 8192,
		.holder_count = 0,
		.age_ms = 252000,
		.publisher_pid = 0,
	},
	{
		.owner_uid = 4000000001,
		.name = HOSTILE,
		.generation = 3,
		.access = TIDL_ACCESS_SHARED,
		.retention = TIDL_RETENTION_PERSIST,
		.mode = 0600,
		.tensor_count = 3,
		.is_bundle = 1,
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.ndim = 0,
		.tensor_bytes = 4,
		.segment_bytes = 8192,
		.holder_count = 11,
		.age_ms = 277200000,
		.publisher_pid = 99,
	},
};

static const struct tidl_tensor_info tensors[] = {
	{
		.key = "",
		.segment_index = 0,
		.byte_offset = 64,
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.ndim = 2,
		.shape = shape_matrix,
		.strides = strides_matrix,
		.nbytes = 128,
	},
	{
		.key = "b/" HOSTILE,
		.segment_index = -1,
		.dtype = {.code = 1, .bits = 8, .lanes = 1},
		.ndim = 1,
		.shape = shape_vector,
		.strides = strides_vector,
		.nbytes = 5,
	},
	{
		.key = "scalar",
		.segment_index = 0,
		.byte_offset = 16,
		.dtype = {.code = 2, .bits = 32, .lanes = 1},
		.nbytes = 4,
	},
};

static const struct tidl_segment_info segments[] = {
	{
		.id = 7,
		.size_bytes = 8192,
		.data_size_bytes = 4096,
		.seals = 0x47,
		.inode = 2061,
		.step = 12,
		.is_updating = 1,
	},
	{
		.id = 8,
		.size_bytes = 4096,
		.data_offset_bytes = 0,
		.data_size_bytes = 4096,
		.seals = 0,
		.inode = 2062,
	},
};

static const struct tidl_holder holders[] = {
	{
		.kind = TIDL_HOLDER_ALLOCATION,
		.attach = TIDL_ATTACH_WRITE,
		.age_ms = 7500000,
		.process =
			{
				.uid = 4000000001,
				.gid = 4000000001,
				.pid = 4711,
				.name = "python3",
				.command = "python3 producer.py --name \xe9\x87\x8d",
				.cgroup = "/user.slice",
				.is_connected = 1,
			},
	},
	{
		.kind = TIDL_HOLDER_LEASE,
		.attach = TIDL_ATTACH_READ,
		.age_ms = 0,
		.process =
			{
				.uid = 4000000002,
				.gid = 4000000002,
				.pid = 12,
				.name = HOSTILE,
				.command = "",
				.cgroup = "",
			},
	},
	{
		.kind = TIDL_HOLDER_PIN,
		.attach = TIDL_ATTACH_READ,
		.age_ms = 1000,
		.left_ms = 59000,
		.process =
			{
				.uid = 4000000002,
				.gid = 4000000002,
				.pid = 13,
				.name = "carrier",
				.command = "",
				.cgroup = "",
			},
	},
};

static const uint64_t kept_generations[] = {42, 41};

static const struct tidl_inspect_info info_full = {
	.owner_uid = 4000000001,
	.name = "demo/x",
	.generation = 1,
	.access = TIDL_ACCESS_SHARED,
	.retention = TIDL_RETENTION_UNTIL_IDLE,
	.path = TIDL_PATH_COPIED,
	.mode = 0640,
	.group = 4000000001,
	.age_ms = 3999,
	.exposed_bytes = 4096,
	.is_write_protected = 1,
	.metadata = "{\"unit\": \"m\xc2\xb2\"}",
	.publisher =
		{
			.uid = 4000000001,
			.gid = 4000000001,
			.pid = 4711,
			.name = HOSTILE,
			.command = "python3 " HOSTILE,
			.cgroup = "/" HOSTILE,
			.is_connected = 1,
		},
	.segment_count = 2,
	.tensor_count = 3,
	.is_bundle = 1,
	.holder_count = 3,
	.left_ms = 61000,
	.kept_count = 2,
	.kept_generations = kept_generations,
};

static const struct tidl_inspect_info info_empty = {
	.owner_uid = 4000000001,
	.name = "empty",
	.generation = 2,
	.access = TIDL_ACCESS_SHARED,
	.retention = TIDL_RETENTION_PERSIST,
	.path = TIDL_PATH_EMPTY,
	.mode = 0600,
	.survives_restart = 1,
	.is_write_protected = 1,
	.is_same_uid_write_protected = 1,
	.left_ms = -1,
	.publisher = {.name = "gone", .command = "", .cgroup = ""},
};

const char *tidl_version(void)
{
	return "0.0.0";
}

/* The address chooses how connecting goes. */
int tidl_connect(const struct tidl_connect_options *options, struct tidl_client **ret_client)
{
	if (!options->no_autostart)
		abort();
	if (options->address && strcmp(options->address, "nowhere") == 0)
		return TIDL_ERR_NO_BROKER;
	if (options->address && strcmp(options->address, "denied") == 0)
		return TIDL_ERR_PERMISSION;
	*ret_client = &the_client;
	return 0;
}

int tidl_disconnect(struct tidl_client *client)
{
	(void)client;
	return 0;
}

const struct tidl_broker_info *tidl_broker(const struct tidl_client *client)
{
	static const struct tidl_broker_info broker = {
		.address = "/run/fake.sock",
		.version = "0.0.0",
		.uid = 4000000001,
	};

	(void)client;
	return &broker;
}

int tidl_list(struct tidl_client *client, const char *pattern, struct tidl_listing **ret_listing)
{
	static struct tidl_listing full;
	static struct tidl_listing empty = {.is_empty = 1};

	(void)client;
	if (pattern && strcmp(pattern, "gone") == 0)
		return TIDL_ERR_BROKER_GONE;
	*ret_listing = pattern && strcmp(pattern, "none") == 0 ? &empty : &full;
	return 0;
}

size_t tidl_listing_count(const struct tidl_listing *listing)
{
	return listing->is_empty ? 0 : sizeof(entries) / sizeof(entries[0]);
}

const struct tidl_list_entry *tidl_listing_entry(const struct tidl_listing *listing, size_t index)
{
	(void)listing;
	return &entries[index];
}

void tidl_listing_free(struct tidl_listing *listing)
{
	(void)listing;
}

int tidl_inspect(struct tidl_client *client, const char *name,
		 struct tidl_inspection **ret_inspection)
{
	static struct tidl_inspection full = {.name = "demo/x"};
	static struct tidl_inspection empty = {.name = "empty"};

	(void)client;
	if (strcmp(name, full.name) == 0)
		*ret_inspection = &full;
	else if (strcmp(name, empty.name) == 0)
		*ret_inspection = &empty;
	else
		return TIDL_ERR_NOT_FOUND;
	return 0;
}

const struct tidl_inspect_info *tidl_inspection_info(const struct tidl_inspection *i)
{
	return strcmp(i->name, "empty") == 0 ? &info_empty : &info_full;
}

const struct tidl_segment_info *tidl_inspection_segment(const struct tidl_inspection *i,
							size_t index)
{
	(void)i;
	return &segments[index];
}

const struct tidl_tensor_info *tidl_inspection_tensor(const struct tidl_inspection *i, size_t index)
{
	(void)i;
	return &tensors[index];
}

const struct tidl_holder *tidl_inspection_holder(const struct tidl_inspection *i, size_t index)
{
	(void)i;
	return &holders[index];
}

void tidl_inspection_free(struct tidl_inspection *inspection)
{
	(void)inspection;
}

int tidl_remove(struct tidl_client *client, const char *name)
{
	(void)client;
	return strncmp(name, "missing", 7) == 0 ? TIDL_ERR_NOT_FOUND : 0;
}

int tidl_wait(struct tidl_client *client, const char *name, const struct tidl_wait_options *options,
	      uint64_t *ret_generation)
{
	(void)client;
	if (strcmp(name, "none") == 0)
		return TIDL_ERR_TIMEOUT;
	*ret_generation = options->newer_than + 1;
	return 0;
}

static const struct tidl_event events[] = {
	{.kind = TIDL_EVENT_PUBLISHED, .owner_uid = 4000000001, .generation = 7, .name = "demo/x"},
	{.kind = TIDL_EVENT_REMOVED, .owner_uid = 4000000002, .generation = 8, .name = HOSTILE},
	{.kind = TIDL_EVENT_LOST},
	{.kind = TIDL_EVENT_LEASED,
	 .owner_uid = 4000000001,
	 .generation = 9,
	 .holder_uid = 4000000003,
	 .holder_pid = 4711,
	 .attach = TIDL_ATTACH_READ,
	 .name = "demo/x"},
};

/* Counts what it has told. */
struct tidl_watch {
	size_t told;
};

static struct tidl_watch the_watch;

int tidl_watch(struct tidl_client *client, const char *pattern,
	       const struct tidl_watch_options *options, struct tidl_watch **ret_watch)
{
	(void)client;
	(void)pattern;
	(void)options;
	*ret_watch = &the_watch;
	return 0;
}

int tidl_watch_next(struct tidl_watch *watch, int64_t timeout_ms, struct tidl_event *ret_event)
{
	(void)timeout_ms;
	if (watch->told == sizeof(events) / sizeof(events[0]))
		return TIDL_ERR_BROKER_GONE;
	*ret_event = events[watch->told++];
	return 0;
}

void tidl_unwatch(struct tidl_watch *watch)
{
	(void)watch;
}

const char *tidl_event_kind_name(enum tidl_event_kind kind)
{
	switch (kind) {
	case TIDL_EVENT_PUBLISHED:
		return "published";
	case TIDL_EVENT_REMOVED:
		return "removed";
	case TIDL_EVENT_LEASED:
		return "leased";
	default:
		return "lost";
	}
}

int tidl_shutdown(struct tidl_client *client)
{
	(void)client;
	return 0;
}

const char *tidl_error_name(int code)
{
	switch (code) {
	case TIDL_ERR_NOT_FOUND:
		return "NOT_FOUND";
	case TIDL_ERR_PERMISSION:
		return "PERMISSION";
	case TIDL_ERR_NO_BROKER:
		return "NO_BROKER";
	case TIDL_ERR_BROKER_GONE:
		return "BROKER_GONE";
	default:
		return "UNKNOWN";
	}
}

const char *tidl_error_text(int code)
{
	(void)code;
	return "the general sentence";
}

const char *tidl_last_error(void)
{
	return "the sentence of " HOSTILE;
}

const char *tidl_access_name(enum tidl_access access)
{
	return access == TIDL_ACCESS_SHARED ? "shared" : "?";
}

const char *tidl_attach_name(enum tidl_attach attach)
{
	return attach == TIDL_ATTACH_READ ? "read" : "write";
}

const char *tidl_retention_name(enum tidl_retention retention)
{
	switch (retention) {
	case TIDL_RETENTION_PERSIST:
		return "persist";
	case TIDL_RETENTION_OWNER:
		return "owner";
	case TIDL_RETENTION_UNTIL_IDLE:
		return "until-idle";
	default:
		return "?";
	}
}

const char *tidl_path_name(enum tidl_path path)
{
	return path == TIDL_PATH_COPIED ? "copied" : "empty";
}

const char *tidl_dtype_name(struct tidl_dtype dtype, char *buffer, size_t size)
{
	snprintf(buffer, size, "%s%u", dtype.code == 2 ? "float" : "uint", dtype.bits);
	return buffer;
}
