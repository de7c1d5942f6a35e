/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a connection: hello, welcome, failure, done, cancel. */
#include "proto/codec/codec.h"

#include <string.h>

#include "proto/base/utf8.h"

int tdp_codec_unpack_hello(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			   struct tdp_message *ret_message)
{
	const Tidl__Wire__Hello *wire = envelope->hello;
	struct tdp_hello *hello = &ret_message->hello;
	int result = tdp_codec_unpack_report(codec, "hello.client_name", wire->client_name,
					     TDP_CLIENT_NAME_MAX_BYTES, &hello->client_name);

	if (result == 0)
		result = tdp_codec_unpack_report(codec, "hello.command", wire->command,
						 TDP_COMMAND_MAX_BYTES, &hello->command);
	if (result == 0)
		result = tdp_codec_unpack_report(codec, "hello.cgroup", wire->cgroup,
						 TDP_CGROUP_MAX_BYTES, &hello->cgroup);
	if (result < 0)
		return result;
	hello->min_version = wire->min_version;
	hello->max_version = wire->max_version;
	hello->features = wire->features;
	hello->pid_namespace = wire->pid_namespace;
	hello->ipc_namespace = wire->ipc_namespace;
	hello->dev_shm_device = wire->dev_shm_device;
	return 0;
}

int tdp_codec_pack_hello(struct tdp_codec *codec, const struct tdp_message *message,
			 Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_hello *hello = &message->hello;
	Tidl__Wire__Hello *wire = tdp_codec_new(codec, &tidl__wire__hello__descriptor);
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->min_version = hello->min_version;
	wire->max_version = hello->max_version;
	wire->has_features = hello->features != 0;
	wire->features = hello->features;
	wire->has_pid_namespace = hello->pid_namespace != 0;
	wire->pid_namespace = hello->pid_namespace;
	wire->has_ipc_namespace = hello->ipc_namespace != 0;
	wire->ipc_namespace = hello->ipc_namespace;
	wire->has_dev_shm_device = hello->dev_shm_device != 0;
	wire->dev_shm_device = hello->dev_shm_device;
	result = tdp_codec_pack_report(codec, hello->client_name, TDP_CLIENT_NAME_MAX_BYTES,
				       &wire->client_name);
	if (result == 0)
		result = tdp_codec_pack_report(codec, hello->command, TDP_COMMAND_MAX_BYTES,
					       &wire->command);
	if (result == 0)
		result = tdp_codec_pack_report(codec, hello->cgroup, TDP_CGROUP_MAX_BYTES,
					       &wire->cgroup);
	ret_envelope->hello = wire;
	return result;
}

int tdp_codec_unpack_welcome(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Welcome *wire = envelope->welcome;
	struct tdp_welcome *welcome = &ret_message->welcome;
	int result = tdp_codec_check_range(codec, "welcome.broker_id", (int64_t)wire->broker_id.len,
					   TDP_BROKER_ID_BYTES, TDP_BROKER_ID_BYTES);

	if (result == 0)
		result = tdp_codec_check_text(codec, "welcome.server_version", wire->server_version,
					      TDP_VERSION_TEXT_MAX_BYTES);
	if (result < 0)
		return result;
	welcome->version = wire->version;
	welcome->features = wire->features;
	memcpy(welcome->broker_id, wire->broker_id.data, TDP_BROKER_ID_BYTES);
	welcome->epoch = wire->epoch;
	welcome->server_version = wire->server_version;
	welcome->uid = wire->uid;
	welcome->is_private = wire->is_private;
	welcome->max_packet_bytes =
		wire->has_max_packet_bytes ? wire->max_packet_bytes : TDP_PACKET_MAX_BYTES;
	welcome->max_fds = wire->has_max_fds ? wire->max_fds : TDP_PACKET_MAX_FDS;
	welcome->max_segment_bytes =
		wire->has_max_segment_bytes ? wire->max_segment_bytes : UINT64_MAX;
	return 0;
}

int tdp_codec_pack_welcome(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_welcome *welcome = &message->welcome;
	Tidl__Wire__Welcome *wire = tdp_codec_new(codec, &tidl__wire__welcome__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->version = welcome->version;
	wire->has_features = welcome->features != 0;
	wire->features = welcome->features;
	wire->broker_id.len = TDP_BROKER_ID_BYTES;
	wire->broker_id.data = tdp_codec_unconst(welcome->broker_id);
	wire->epoch = welcome->epoch;
	wire->server_version =
		tdp_codec_unconst(welcome->server_version ? welcome->server_version : "");
	wire->uid = welcome->uid;
	wire->has_is_private = welcome->is_private;
	wire->is_private = welcome->is_private;
	wire->has_max_packet_bytes = 1;
	wire->max_packet_bytes = welcome->max_packet_bytes;
	wire->has_max_fds = 1;
	wire->max_fds = welcome->max_fds;
	wire->has_max_segment_bytes = 1;
	wire->max_segment_bytes = welcome->max_segment_bytes;
	ret_envelope->welcome = wire;
	return 0;
}

/* A failure is never refused for its sentence: it is cut and made printable instead, so that the
 * code reaches its caller. */
int tdp_codec_unpack_failure(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			     struct tdp_message *ret_message)
{
	const Tidl__Wire__Failure *wire = envelope->failure;
	int result = tdp_codec_check_range(codec, "failure.code", wire->code, 1, INT32_MAX);

	if (result < 0)
		return result;
	if (strlen(wire->message) > TDP_FAILURE_TEXT_MAX_BYTES)
		wire->message[TDP_FAILURE_TEXT_MAX_BYTES] = '\0';
	tdp_utf8_clean(wire->message);
	ret_message->failure.code = -(int)wire->code;
	ret_message->failure.message = wire->message;
	return 0;
}

int tdp_codec_pack_failure(struct tdp_codec *codec, const struct tdp_message *message,
			   Tidl__Wire__Envelope *ret_envelope)
{
	const struct tdp_failure *failure = &message->failure;
	Tidl__Wire__Failure *wire = tdp_codec_new(codec, &tidl__wire__failure__descriptor);
	const char *text = failure->message;
	int result;

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	if (text == NULL || text[0] == '\0')
		text = tdp_error_text(failure->code);
	wire->code = (uint32_t)-failure->code;
	result = tdp_codec_pack_report(codec, text, TDP_FAILURE_TEXT_MAX_BYTES, &wire->message);
	ret_envelope->failure = wire;
	return result;
}

int tdp_codec_pack_done(struct tdp_codec *codec, const struct tdp_message *message,
			Tidl__Wire__Envelope *ret_envelope)
{
	(void)message;
	ret_envelope->done = tdp_codec_new(codec, &tidl__wire__done__descriptor);
	return ret_envelope->done ? 0 : tdp_codec_no_memory(codec);
}

int tdp_codec_unpack_cancel(struct tdp_codec *codec, const Tidl__Wire__Envelope *envelope,
			    struct tdp_message *ret_message)
{
	(void)codec;
	ret_message->cancel.request_id = envelope->cancel->request_id;
	return 0;
}

int tdp_codec_pack_cancel(struct tdp_codec *codec, const struct tdp_message *message,
			  Tidl__Wire__Envelope *ret_envelope)
{
	Tidl__Wire__Cancel *wire = tdp_codec_new(codec, &tidl__wire__cancel__descriptor);

	if (wire == NULL)
		return tdp_codec_no_memory(codec);
	wire->request_id = message->cancel.request_id;
	ret_envelope->cancel = wire;
	return 0;
}
