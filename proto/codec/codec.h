/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_CODEC_CODEC_H
#define TDP_CODEC_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/arena.h"
#include "proto/base/attr.h"
#include "proto/base/fault.h"
#include "proto/wire/message.h"
#include "tidl.pb-c.h"

/*
 * Inside the codec: what its files share. Only proto/codec/ includes this.
 *
 * Unpacking borrows from the generated structs wherever the types agree; both live in the arena.
 * Packing builds the generated structs in an arena of its own and borrows from the plain ones.
 */
struct tdp_codec {
	struct tdp_arena *arena;
	struct tdp_fault *fault;
};

typedef int tdp_codec_unpack_fn(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
				struct tdp_message *ret_message);
typedef int tdp_codec_pack_fn(struct tdp_codec *codec, const struct tdp_message *message,
			      Tidl__Wire__Envelope *ret_envelope);

/* TIDL_ERR_NO_MEMORY with its sentence. */
int tdp_codec_no_memory(struct tdp_codec *codec);

/* An initialised message of the generated type that @descriptor belongs to, or NULL. */
void *tdp_codec_new(struct tdp_codec *codec, const ProtobufCMessageDescriptor *descriptor);

/* The generated structs have no const; packing does not write through them. */
static inline void *tdp_codec_unconst(const void *pointer)
{
	return (void *)(uintptr_t)pointer;
}

/* ---- words that several messages share (codec_common.c) ---- */

/* 0, or TIDL_ERR_PROTOCOL when @value is outside [@low, @high]. */
int tdp_codec_check_range(struct tdp_codec *codec, const char *field, int64_t value, int64_t low,
			  int64_t high) TDP_MUST_CHECK;
int tdp_codec_check_access(struct tdp_codec *codec, int value) TDP_MUST_CHECK;
int tdp_codec_check_attach(struct tdp_codec *codec, int value) TDP_MUST_CHECK;
int tdp_codec_check_retention(struct tdp_codec *codec, int value) TDP_MUST_CHECK;
int tdp_codec_check_path(struct tdp_codec *codec, int value) TDP_MUST_CHECK;

/* A printable text of at most @max_bytes, or TIDL_ERR_PROTOCOL. */
int tdp_codec_check_text(struct tdp_codec *codec, const char *field, const char *text,
			 size_t max_bytes) TDP_MUST_CHECK;

/* NULL or UTF-8 within the limit, or TIDL_ERR_PROTOCOL. That it is JSON is for others to find. */
int tdp_codec_check_metadata(struct tdp_codec *codec, const char *metadata) TDP_MUST_CHECK;

/*
 * A self-reported text: TIDL_ERR_PROTOCOL when longer than @max_bytes, "" when absent, `?` for what
 * is not printable. Processes do not choose their command line, so it is no reason to refuse them.
 */
int tdp_codec_unpack_report(struct tdp_codec *codec, const char *field, char *text,
			    size_t max_bytes, const char **ret_text) TDP_MUST_CHECK;

/* The reverse: cut to @max_bytes, made printable, NULL (absent) when empty. */
int tdp_codec_pack_report(struct tdp_codec *codec, const char *text, size_t max_bytes,
			  char **ret_text) TDP_MUST_CHECK;

int tdp_codec_unpack_dtype(struct tdp_codec *codec, const Tidl__Wire__DataType *wire,
			   struct tidl_dtype *ret_dtype) TDP_MUST_CHECK;
int tdp_codec_pack_dtype(struct tdp_codec *codec, struct tidl_dtype dtype,
			 Tidl__Wire__DataType **ret_wire) TDP_MUST_CHECK;

int tdp_codec_unpack_segment(struct tdp_codec *codec, const Tidl__Wire__Segment *wire,
			     struct tdp_segment *ret_segment) TDP_MUST_CHECK;
int tdp_codec_pack_segment(struct tdp_codec *codec, const struct tdp_segment *segment,
			   Tidl__Wire__Segment **ret_wire) TDP_MUST_CHECK;
int tdp_codec_unpack_segments(struct tdp_codec *codec, size_t count,
			      Tidl__Wire__Segment *const *wires,
			      const struct tdp_segment **ret_segments) TDP_MUST_CHECK;
int tdp_codec_pack_segments(struct tdp_codec *codec, size_t count,
			    const struct tdp_segment *segments, size_t *ret_count,
			    Tidl__Wire__Segment ***ret_wires) TDP_MUST_CHECK;

/* @segment_count bounds the tensors' segment indexes. */
int tdp_codec_unpack_tensors(struct tdp_codec *codec, size_t count,
			     Tidl__Wire__Tensor *const *wires, uint64_t segment_count,
			     const struct tdp_tensor **ret_tensors) TDP_MUST_CHECK;
int tdp_codec_pack_tensors(struct tdp_codec *codec, size_t count, const struct tdp_tensor *tensors,
			   size_t *ret_count, Tidl__Wire__Tensor ***ret_wires) TDP_MUST_CHECK;

/* Bundles (codec_bundle.c). */
int tdp_codec_unpack_empty_mappings(struct tdp_codec *codec, size_t count,
				    Tidl__Wire__EmptyMapping *const *wires,
				    const struct tdp_empty_mapping **ret_mappings) TDP_MUST_CHECK;
int tdp_codec_pack_empty_mappings(struct tdp_codec *codec, size_t count,
				  const struct tdp_empty_mapping *mappings, size_t *ret_count,
				  Tidl__Wire__EmptyMapping ***ret_wires) TDP_MUST_CHECK;
/* Numbers are absent, or as many as segments. */
int tdp_codec_check_segment_numbers(struct tdp_codec *codec, size_t segment_count,
				    size_t number_count, const uint32_t *numbers) TDP_MUST_CHECK;
int tdp_codec_check_keys(struct tdp_codec *codec, size_t count, char *const *keys) TDP_MUST_CHECK;

int tdp_codec_unpack_process(struct tdp_codec *codec, const Tidl__Wire__Process *wire,
			     struct tdp_process *ret_process) TDP_MUST_CHECK;
int tdp_codec_pack_process(struct tdp_codec *codec, const struct tdp_process *process,
			   Tidl__Wire__Process **ret_wire) TDP_MUST_CHECK;

/* ---- one pair for each message that has a content ---- */

tdp_codec_unpack_fn tdp_codec_unpack_hello;
tdp_codec_unpack_fn tdp_codec_unpack_welcome;
tdp_codec_unpack_fn tdp_codec_unpack_failure;
tdp_codec_unpack_fn tdp_codec_unpack_cancel;
tdp_codec_unpack_fn tdp_codec_unpack_get_more;
tdp_codec_unpack_fn tdp_codec_unpack_more;
tdp_codec_unpack_fn tdp_codec_unpack_allocate;
tdp_codec_unpack_fn tdp_codec_unpack_allocated;
tdp_codec_unpack_fn tdp_codec_unpack_publish;
tdp_codec_unpack_fn tdp_codec_unpack_published;
tdp_codec_unpack_fn tdp_codec_unpack_get;
tdp_codec_unpack_fn tdp_codec_unpack_granted;
tdp_codec_unpack_fn tdp_codec_unpack_release;
tdp_codec_unpack_fn tdp_codec_unpack_open;
tdp_codec_unpack_fn tdp_codec_unpack_opened;
tdp_codec_unpack_fn tdp_codec_unpack_watch_writer;
tdp_codec_unpack_fn tdp_codec_unpack_remove;
tdp_codec_unpack_fn tdp_codec_unpack_pin;
tdp_codec_unpack_fn tdp_codec_unpack_wait;
tdp_codec_unpack_fn tdp_codec_unpack_waited;
tdp_codec_unpack_fn tdp_codec_unpack_list;
tdp_codec_unpack_fn tdp_codec_unpack_listing;
tdp_codec_unpack_fn tdp_codec_unpack_inspect;
tdp_codec_unpack_fn tdp_codec_unpack_inspection;
tdp_codec_unpack_fn tdp_codec_unpack_watch;
tdp_codec_unpack_fn tdp_codec_unpack_watching;
tdp_codec_unpack_fn tdp_codec_unpack_unwatch;
tdp_codec_unpack_fn tdp_codec_unpack_event;

tdp_codec_pack_fn tdp_codec_pack_hello;
tdp_codec_pack_fn tdp_codec_pack_welcome;
tdp_codec_pack_fn tdp_codec_pack_failure;
tdp_codec_pack_fn tdp_codec_pack_done;
tdp_codec_pack_fn tdp_codec_pack_cancel;
tdp_codec_pack_fn tdp_codec_pack_get_more;
tdp_codec_pack_fn tdp_codec_pack_more;
tdp_codec_pack_fn tdp_codec_pack_allocate;
tdp_codec_pack_fn tdp_codec_pack_allocated;
tdp_codec_pack_fn tdp_codec_pack_publish;
tdp_codec_pack_fn tdp_codec_pack_published;
tdp_codec_pack_fn tdp_codec_pack_get;
tdp_codec_pack_fn tdp_codec_pack_granted;
tdp_codec_pack_fn tdp_codec_pack_release;
tdp_codec_pack_fn tdp_codec_pack_open;
tdp_codec_pack_fn tdp_codec_pack_opened;
tdp_codec_pack_fn tdp_codec_pack_watch_writer;
tdp_codec_pack_fn tdp_codec_pack_remove;
tdp_codec_pack_fn tdp_codec_pack_pin;
tdp_codec_pack_fn tdp_codec_pack_wait;
tdp_codec_pack_fn tdp_codec_pack_waited;
tdp_codec_pack_fn tdp_codec_pack_list;
tdp_codec_pack_fn tdp_codec_pack_listing;
tdp_codec_pack_fn tdp_codec_pack_inspect;
tdp_codec_pack_fn tdp_codec_pack_inspection;
tdp_codec_pack_fn tdp_codec_pack_watch;
tdp_codec_pack_fn tdp_codec_pack_watching;
tdp_codec_pack_fn tdp_codec_pack_unwatch;
tdp_codec_pack_fn tdp_codec_pack_event;
tdp_codec_pack_fn tdp_codec_pack_shutdown;
tdp_codec_pack_fn tdp_codec_pack_goodbye;

#endif
