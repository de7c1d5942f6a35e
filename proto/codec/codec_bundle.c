/* SPDX-License-Identifier: Apache-2.0 */
/* What bundles add to the messages about tensors: empty mappings, keys, answers in parts. */
#include "proto/codec/codec.h"

/* ---- empty mappings ---- */

int tdp_codec_unpack_empty_mappings(struct tdp_codec *codec, size_t count,
				    Tidl__Wire__EmptyMapping *const *wires,
				    const struct tdp_empty_mapping **ret_mappings)
{
	struct tdp_empty_mapping *mappings =
		tdp_arena_zalloc(codec->arena, count, sizeof(struct tdp_empty_mapping));

	if (mappings == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		int result = tdp_codec_check_text(codec, "empty_mapping.key", wires[i]->key,
						  TDP_KEY_MAX_BYTES);

		if (result < 0)
			return result;
		mappings[i].key = wires[i]->key;
		mappings[i].position = wires[i]->position;
	}
	*ret_mappings = mappings;
	return 0;
}

int tdp_codec_pack_empty_mappings(struct tdp_codec *codec, size_t count,
				  const struct tdp_empty_mapping *mappings, size_t *ret_count,
				  Tidl__Wire__EmptyMapping ***ret_wires)
{
	Tidl__Wire__EmptyMapping **wires =
		tdp_arena_zalloc(codec->arena, count, sizeof(Tidl__Wire__EmptyMapping *));

	if (wires == NULL)
		return tdp_codec_no_memory(codec);
	for (size_t i = 0; i < count; i++) {
		wires[i] = tdp_codec_new(codec, &tidl__wire__empty_mapping__descriptor);
		if (wires[i] == NULL)
			return tdp_codec_no_memory(codec);
		wires[i]->key = tdp_codec_unconst(mappings[i].key);
		wires[i]->position = mappings[i].position;
	}
	*ret_count = count;
	*ret_wires = wires;
	return 0;
}

/* ---- keys ---- */

int tdp_codec_check_keys(struct tdp_codec *codec, size_t count, char *const *keys)
{
	int result = 0;

	for (size_t i = 0; i < count && result == 0; i++)
		result = tdp_codec_check_text(codec, "key", keys[i], TDP_KEY_MAX_BYTES);
	return result;
}

/* ---- answers in parts ---- */

int tdp_codec_check_segment_numbers(struct tdp_codec *codec, size_t segment_count,
				    size_t number_count, const uint32_t *numbers)
{
	int result = 0;

	if (number_count == 0)
		return 0;
	result = tdp_codec_check_range(codec, "segment_numbers", (int64_t)number_count,
				       (int64_t)segment_count, (int64_t)segment_count);
	for (size_t i = 0; i < number_count && result == 0; i++)
		result = tdp_codec_check_range(codec, "segment_number", numbers[i], 0,
					       TDP_SEGMENTS_PER_PUBLICATION - 1);
	return result;
}

int tdp_codec_unpack_get_more(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			      struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->get_more.cursor = envelope->get_more->cursor;
	return 0;
}

int tdp_codec_pack_get_more(struct tdp_codec *codec, const struct tdp_message *message,
			    Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__GetMore *wire = tdp_codec_new(codec, &tidl__wire__get_more__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->cursor = message->get_more.cursor;
	ret_envelope->get_more = wire;
	return 0;
}

int tdp_codec_unpack_more(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			  struct tdp_message *ret_message)
{
	const Tidl__Wire__More *wire = envelope->more;
	struct tdp_more *more = &ret_message->more;
	int result = tdp_codec_check_segment_numbers(
		codec, wire->n_segments, wire->n_segment_numbers, wire->segment_numbers);

	if (result == 0)
		result = tdp_codec_unpack_segments(codec, wire->n_segments, wire->segments,
						   &more->segments);
	if (result < 0)
		return result;
	more->next_cursor = wire->next_cursor;
	more->segment_count = wire->n_segments;
	more->segment_number_count = wire->n_segment_numbers;
	more->segment_numbers = wire->segment_numbers;
	return 0;
}

int tdp_codec_pack_more(struct tdp_codec *codec, const struct tdp_message *message,
			Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_more *more = &message->more;
	Tidl__Wire__More *wire = tdp_codec_new(codec, &tidl__wire__more__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	ret_envelope->more = wire;
	wire->has_next_cursor = more->next_cursor != 0;
	wire->next_cursor = more->next_cursor;
	wire->n_segment_numbers = more->segment_number_count;
	wire->segment_numbers = tdp_codec_unconst(more->segment_numbers);
	return tdp_codec_pack_segments(codec, more->segment_count, more->segments,
				       &wire->n_segments, &wire->segments);
}
