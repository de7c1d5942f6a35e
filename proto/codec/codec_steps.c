/* SPDX-License-Identifier: Apache-2.0 */
/* The message about steps; the steps themselves are in the memory, not on the wire. */
#include "proto/codec/codec.h"

int tdp_codec_unpack_watch_writer(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
				  struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->watch_writer.segment_id = envelope->watch_writer->segment_id;
	ret_message->watch_writer.wait = envelope->watch_writer->wait;
	return 0;
}

int tdp_codec_pack_watch_writer(struct tdp_codec *codec, const struct tdp_message *message,
				Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__WatchWriter *wire = tdp_codec_new(codec, &tidl__wire__watch_writer__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->segment_id = message->watch_writer.segment_id;
	wire->has_wait = message->watch_writer.wait;
	wire->wait = message->watch_writer.wait;
	ret_envelope->watch_writer = wire;
	return 0;
}
