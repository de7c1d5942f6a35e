/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From packets to plain messages and back: the table of messages, the capped allocator and the
 * envelope. What is inside a message is in the codec_*.c beside it. Does no input or output.
 */
#include "proto/codec/codec.h"

#include <string.h>

#include "proto/codec/varint.h"

static const struct codec_row {
	const char *name;
	Tidl__Wire__Envelope__BodyCase body;
	tdp_codec_unpack_fn *unpack; /* NULL: no content */
	tdp_codec_pack_fn *pack;
} codec_rows[TDP_MESSAGE_KIND_COUNT] = {
#define CODEC_ROW(NAME, object)                                                                    \
	[TDP_MESSAGE_##NAME] = {#NAME, TIDL__WIRE__ENVELOPE__BODY_##NAME,                          \
				tdp_codec_unpack_##object, tdp_codec_pack_##object}
	[TDP_MESSAGE_NONE] = {"NONE", TIDL__WIRE__ENVELOPE__BODY__NOT_SET, NULL, NULL},
	CODEC_ROW(HELLO, hello),
	CODEC_ROW(WELCOME, welcome),
	CODEC_ROW(FAILURE, failure),
	[TDP_MESSAGE_DONE] = {"DONE", TIDL__WIRE__ENVELOPE__BODY_DONE, NULL, tdp_codec_pack_done},
	CODEC_ROW(CANCEL, cancel),
	CODEC_ROW(GET_MORE, get_more),
	CODEC_ROW(MORE, more),
	CODEC_ROW(ALLOCATE, allocate),
	CODEC_ROW(ALLOCATED, allocated),
	CODEC_ROW(PUBLISH, publish),
	CODEC_ROW(PUBLISHED, published),
	CODEC_ROW(GET, get),
	CODEC_ROW(GRANTED, granted),
	CODEC_ROW(RELEASE, release),
	CODEC_ROW(OPEN, open),
	CODEC_ROW(OPENED, opened),
	CODEC_ROW(WATCH_WRITER, watch_writer),
	CODEC_ROW(REMOVE, remove),
	CODEC_ROW(PIN, pin),
	CODEC_ROW(WAIT, wait),
	CODEC_ROW(WAITED, waited),
	CODEC_ROW(LIST, list),
	CODEC_ROW(LISTING, listing),
	CODEC_ROW(INSPECT, inspect),
	CODEC_ROW(INSPECTION, inspection),
	[TDP_MESSAGE_SHUTDOWN] = {"SHUTDOWN", TIDL__WIRE__ENVELOPE__BODY_SHUTDOWN, NULL,
				  tdp_codec_pack_shutdown},
	CODEC_ROW(WATCH, watch),
	CODEC_ROW(WATCHING, watching),
	CODEC_ROW(UNWATCH, unwatch),
	CODEC_ROW(EVENT, event),
	[TDP_MESSAGE_GOODBYE] = {"GOODBYE", TIDL__WIRE__ENVELOPE__BODY_GOODBYE, NULL,
				 tdp_codec_pack_goodbye},
	[TDP_MESSAGE_UNBUILT] = {"UNBUILT", TIDL__WIRE__ENVELOPE__BODY__NOT_SET, NULL, NULL},
#undef CODEC_ROW
};

const char *tdp_message_name(enum tdp_message_kind kind)
{
	return (unsigned int)kind < TDP_MESSAGE_KIND_COUNT ? codec_rows[kind].name : "UNKNOWN";
}

int tdp_codec_no_memory(struct tdp_codec *codec)
{
	return tdp_fault_set(codec->fault, TIDL_ERR_NO_MEMORY,
			     "the message needs more memory than one message may: send less at "
			     "once, or free some memory");
}

void *tdp_codec_new(struct tdp_codec *codec, const ProtobufCMessageDescriptor *descriptor)
{
	void *message = tdp_arena_alloc(codec->arena, descriptor->sizeof_message);

	if (message != NULL)
		protobuf_c_message_init(descriptor, message);
	return message;
}

/* ---- unpacking ---- */

struct capped_allocator {
	struct tdp_arena *arena;
	bool is_exhausted;
};

static void *capped_alloc(void *context, size_t size_bytes)
{
	struct capped_allocator *capped = context;
	void *piece = tdp_arena_alloc(capped->arena, size_bytes);

	if (piece == NULL)
		capped->is_exhausted = true;
	return piece;
}

static void capped_free(void *context, void *piece)
{
	(void)context;
	(void)piece;
}

/* The request id of a packet that protobuf refuses, so that the refusal reaches its caller: the
 * first varint field with number 1. 0 when it cannot be found. */
static uint64_t envelope_find_request_id(const uint8_t *bytes, size_t size_bytes)
{
	size_t position = 0;
	uint64_t tag;
	uint64_t value;

	while (tdp_varint_read(bytes, size_bytes, &position, &tag)) {
		if (tag == (1 << 3 | 0))
			return tdp_varint_read(bytes, size_bytes, &position, &value) ? value : 0;
		if (!tdp_field_skip(bytes, size_bytes, &position, tag & 7))
			break;
	}
	return 0;
}

static bool texts_are_whole(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
			    size_t size_bytes);

/* The content of a field of bytes, at *position. */
static bool field_is_whole(const ProtobufCFieldDescriptor *field, const uint8_t *bytes,
			   size_t size_bytes, size_t position)
{
	uint64_t length;

	if (!tdp_varint_read(bytes, size_bytes, &position, &length) ||
	    length > size_bytes - position)
		return false;
	if (field->type == PROTOBUF_C_TYPE_STRING)
		return memchr(bytes + position, 0, length) == NULL;
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return texts_are_whole(field->descriptor, bytes + position, length);
	return true;
}

/* No text has a NUL inside: protobuf allows it, and in C the rest would be cut off, so that one
 * name is taken for another. As deep as the schema, which does not contain itself. */
static bool texts_are_whole(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
			    size_t size_bytes)
{
	size_t position = 0;
	uint64_t tag;

	while (tdp_varint_read(bytes, size_bytes, &position, &tag)) {
		const ProtobufCFieldDescriptor *field =
			protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3));

		if (field != NULL && (tag & 7) == 2 &&
		    !field_is_whole(field, bytes, size_bytes, position))
			return false;
		if (!tdp_field_skip(bytes, size_bytes, &position, tag & 7))
			return false;
	}
	return position == size_bytes;
}

static enum tdp_message_kind body_to_kind(Tidl__Wire__Envelope__BodyCase body)
{
	if (body == TIDL__WIRE__ENVELOPE__BODY__NOT_SET)
		return TDP_MESSAGE_NONE;
	for (int kind = TDP_MESSAGE_HELLO; kind < TDP_MESSAGE_UNBUILT; kind++) {
		if (codec_rows[kind].body == body)
			return kind;
	}
	return TDP_MESSAGE_UNBUILT;
}

static int envelope_unpack(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			   struct tdp_message *ret_message)
{
	enum tdp_message_kind kind = body_to_kind(envelope->body_case);
	int result;

	ret_message->request_id = envelope->request_id;
	result =
		tdp_codec_check_range(codec, "fd_count", envelope->fd_count, 0, TDP_PACKET_MAX_FDS);
	if (result < 0)
		return result;
	ret_message->fd_count = envelope->fd_count;
	if (codec_rows[kind].unpack != NULL) {
		result = codec_rows[kind].unpack(codec, envelope, ret_message);
		if (result < 0)
			return result;
	}
	ret_message->kind = kind;
	return 0;
}

int tdp_message_unpack(struct tdp_arena *arena, const void *bytes, size_t size_bytes,
		       struct tdp_message *ret_message, struct tdp_fault *fault)
{
	struct tdp_codec codec = {.arena = arena, .fault = fault};
	struct capped_allocator capped = {.arena = arena};
	ProtobufCAllocator allocator = {
		.alloc = capped_alloc, .free = capped_free, .allocator_data = &capped};
	Tidl__Wire__Envelope *envelope;

	memset(ret_message, 0, sizeof(*ret_message));
	if (size_bytes > TDP_PACKET_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "a packet of %zu bytes is larger than the %d allowed: send "
				     "less at once",
				     size_bytes, TDP_PACKET_MAX_BYTES);
	envelope = tidl__wire__envelope__unpack(&allocator, size_bytes, bytes);
	if (envelope != NULL && texts_are_whole(envelope->base.descriptor, bytes, size_bytes))
		return envelope_unpack(&codec, envelope, ret_message);
	ret_message->request_id = envelope_find_request_id(bytes, size_bytes);
	if (envelope != NULL)
		return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
				     "a text in the packet has a NUL inside: leave it out");
	if (capped.is_exhausted)
		return tdp_codec_no_memory(&codec);
	return tdp_fault_set(fault, TIDL_ERR_PROTOCOL,
			     "the packet is not a tidl message: check that both sides are tidl of "
			     "the same version");
}

/* ---- packing ---- */

int tdp_message_pack(const struct tdp_message *message, void *buffer, size_t capacity_bytes,
		     size_t *ret_size_bytes, struct tdp_fault *fault)
{
	tdp_auto_arena arena;
	struct tdp_codec codec = {.arena = &arena, .fault = fault};
	Tidl__Wire__Envelope envelope = TIDL__WIRE__ENVELOPE__INIT;
	const struct codec_row *row = &codec_rows[message->kind];
	size_t size_bytes;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	envelope.request_id = message->request_id;
	envelope.fd_count = message->fd_count;
	if (row->pack != NULL) {
		int result = row->pack(&codec, message, &envelope);

		if (result < 0)
			return result;
		envelope.body_case = row->body;
	}
	size_bytes = tidl__wire__envelope__get_packed_size(&envelope);
	if (size_bytes > capacity_bytes || size_bytes > TDP_PACKET_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "a %s message of %zu bytes does not fit into a packet: use "
				     "fewer or shorter parts",
				     row->name, size_bytes);
	*ret_size_bytes = tidl__wire__envelope__pack(&envelope, buffer);
	return 0;
}
