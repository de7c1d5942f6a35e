/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about time: pin, wait, watch, their answers, events, goodbye. */
#include "proto/codec/codec.h"

/* ---- pin ---- */

int tdp_codec_unpack_pin(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			 struct tdp_message *ret_message)
{
	const Tidl__Wire__Pin *wire = envelope->pin;
	struct tdp_pin *pin = &ret_message->pin;

	(void)codec;
	pin->name = wire->name;
	pin->has_owner = wire->has_owner_uid;
	pin->owner_uid = wire->owner_uid;
	pin->generation = wire->generation;
	return 0;
}

int tdp_codec_pack_pin(struct tdp_codec *codec, const struct tdp_message *message,
		       Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_pin *pin = &message->pin;
	Tidl__Wire__Pin *wire = tdp_codec_new(codec, &tidl__wire__pin__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->name = tdp_codec_unconst(pin->name);
	wire->has_owner_uid = pin->has_owner;
	wire->owner_uid = pin->owner_uid;
	wire->generation = pin->generation;
	ret_envelope->pin = wire;
	return 0;
}

/* ---- wait ---- */

int tdp_codec_unpack_wait(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			  struct tdp_message *ret_message)
{
	const Tidl__Wire__Wait *wire = envelope->wait;
	struct tdp_wait *wait = &ret_message->wait;

	(void)codec;
	wait->name = wire->name;
	wait->has_owner = wire->has_owner_uid;
	wait->owner_uid = wire->owner_uid;
	wait->newer_than = wire->newer_than;
	wait->released = wire->released;
	wait->generation = wire->generation;
	return 0;
}

int tdp_codec_pack_wait(struct tdp_codec *codec, const struct tdp_message *message,
			Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_wait *wait = &message->wait;
	Tidl__Wire__Wait *wire = tdp_codec_new(codec, &tidl__wire__wait__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->name = tdp_codec_unconst(wait->name);
	wire->has_owner_uid = wait->has_owner;
	wire->owner_uid = wait->owner_uid;
	wire->has_newer_than = wait->newer_than != 0;
	wire->newer_than = wait->newer_than;
	wire->has_released = wait->released;
	wire->released = wait->released;
	wire->has_generation = wait->generation != 0;
	wire->generation = wait->generation;
	ret_envelope->wait = wire;
	return 0;
}

int tdp_codec_unpack_waited(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			    struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->waited.generation = envelope->waited->generation;
	ret_message->waited.owner_uid = envelope->waited->owner_uid;
	return 0;
}

int tdp_codec_pack_waited(struct tdp_codec *codec, const struct tdp_message *message,
			  Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Waited *wire = tdp_codec_new(codec, &tidl__wire__waited__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->generation = message->waited.generation;
	wire->owner_uid = message->waited.owner_uid;
	ret_envelope->waited = wire;
	return 0;
}

/* ---- watch ---- */

int tdp_codec_unpack_watch(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			   struct tdp_message *ret_message)
{
	const Tidl__Wire__Watch *wire = envelope->watch;
	struct tdp_watch *watch = &ret_message->watch;

	(void)codec;
	watch->pattern = wire->pattern;
	watch->any_owner = wire->any_owner;
	watch->has_owner = wire->has_owner_uid;
	watch->owner_uid = wire->owner_uid;
	watch->kinds = wire->has_kinds ? wire->kinds : TDP_EVENT_KINDS_ALL;
	return 0;
}

int tdp_codec_pack_watch(struct tdp_codec *codec, const struct tdp_message *message,
			 Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_watch *watch = &message->watch;
	Tidl__Wire__Watch *wire = tdp_codec_new(codec, &tidl__wire__watch__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->pattern = tdp_codec_unconst(watch->pattern);
	wire->has_any_owner = watch->any_owner;
	wire->any_owner = watch->any_owner;
	wire->has_owner_uid = watch->has_owner;
	wire->owner_uid = watch->owner_uid;
	wire->has_kinds = watch->kinds != TDP_EVENT_KINDS_ALL;
	wire->kinds = watch->kinds;
	ret_envelope->watch = wire;
	return 0;
}

int tdp_codec_unpack_watching(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			      struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->watching.watch_id = envelope->watching->watch_id;
	return 0;
}

int tdp_codec_pack_watching(struct tdp_codec *codec, const struct tdp_message *message,
			    Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Watching *wire = tdp_codec_new(codec, &tidl__wire__watching__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->watch_id = message->watching.watch_id;
	ret_envelope->watching = wire;
	return 0;
}

int tdp_codec_unpack_unwatch(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->unwatch.watch_id = envelope->unwatch->watch_id;
	return 0;
}

int tdp_codec_pack_unwatch(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Unwatch *wire = tdp_codec_new(codec, &tidl__wire__unwatch__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->watch_id = message->unwatch.watch_id;
	ret_envelope->unwatch = wire;
	return 0;
}

/* ---- events ---- */

static int event_check(struct tdp_codec *codec, const Tidl__Wire__Event *wire)
{
	int result = tdp_codec_check_range(codec, "event.kind", wire->kind, TDP_EVENT_PUBLISHED,
					   TDP_EVENT_KIND_COUNT - 1);

	if (result == 0 && wire->name != NULL)
		result = tdp_codec_check_text(codec, "event.name", wire->name, TDP_NAME_MAX_BYTES);
	if (result == 0 && wire->has_attach)
		result = tdp_codec_check_attach(codec, wire->attach);
	return result;
}

int tdp_codec_unpack_event(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			   struct tdp_message *ret_message)
{
	const Tidl__Wire__Event *wire = envelope->event;
	struct tdp_event *event = &ret_message->event;
	int result = event_check(codec, wire);

	if (result < 0)
		return result;
	event->watch_id = wire->watch_id;
	event->kind = (enum tdp_event_kind)wire->kind;
	event->owner_uid = wire->owner_uid;
	event->name = wire->name != NULL ? wire->name : "";
	event->generation = wire->generation;
	event->has_holder = wire->has_attach;
	event->holder_uid = wire->holder_uid;
	event->holder_pid = wire->holder_pid;
	event->attach = wire->has_attach ? (enum tidl_attach)wire->attach : TIDL_ATTACH_READ;
	return 0;
}

int tdp_codec_pack_event(struct tdp_codec *codec, const struct tdp_message *message,
			 Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_event *event = &message->event;
	Tidl__Wire__Event *wire = tdp_codec_new(codec, &tidl__wire__event__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->watch_id = event->watch_id;
	wire->kind = (Tidl__Wire__EventKind)event->kind;
	wire->has_owner_uid = event->name != NULL;
	wire->owner_uid = event->owner_uid;
	wire->name = tdp_codec_unconst(event->name);
	wire->has_generation = event->name != NULL;
	wire->generation = event->generation;
	wire->has_holder_uid = event->has_holder;
	wire->holder_uid = event->holder_uid;
	wire->has_holder_pid = event->has_holder;
	wire->holder_pid = event->holder_pid;
	wire->has_attach = event->has_holder;
	if (event->has_holder)
		wire->attach = (Tidl__Wire__Attach)event->attach;
	ret_envelope->event = wire;
	return 0;
}

int tdp_codec_pack_goodbye(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	(void)message;
	ret_envelope->goodbye = tdp_codec_new(codec, &tidl__wire__goodbye__descriptor);
	return ret_envelope->goodbye ? 0 : tdp_codec_no_memory(codec);
}
