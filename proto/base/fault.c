/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of error codes, and the filling of a fault. Sentences come out as printable UTF-8
 * whatever was quoted in them, since they travel on the wire and end up on terminals.
 */
#include "proto/base/fault.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/utf8.h"

struct error_row {
	const char *name;
	const char *text;
};

/* Every code with its general sentence: what it means and what to do next. */
#define ERROR_TABLE(ROW)                                                                           \
	ROW(INVALID_ARGUMENT, "an argument is outside its documented range: correct the call")     \
	ROW(NAME_INVALID, "the name is not valid: use 1 to 255 bytes of UTF-8, parts separated "   \
			  "by '/', no empty part, no '.', '..', ':' or control characters")        \
	ROW(NOT_FOUND, "nothing that you may read has this name: check it with `tidlctl list`, "   \
		       "or wait for it")                                                           \
	ROW(EXISTS, "the name is taken: choose another one, or ask to replace it")                 \
	ROW(PERMISSION, "owner, group and mode do not allow this: ask the owner for wider mode "   \
			"bits")                                                                    \
	ROW(TIMEOUT, "the time-out passed first: wait longer, or check that the other side runs")  \
	ROW(INTERRUPTED, "a signal ended the wait: call again to go on waiting")                   \
	ROW(QUOTA, "a quota would be exceeded: remove what is no longer needed, or have the "      \
		   "broker's quotas raised")                                                       \
	ROW(LIMIT, "a fixed limit would be exceeded: use something smaller, or fewer")             \
	ROW(NO_MEMORY, "the system has no memory for this: free some and try again")               \
	ROW(DTYPE, "the data type is unknown or has a width it cannot have: use a DLPack type "    \
		   "in its regular width")                                                         \
	ROW(LAYOUT, "rank, shape, strides or offset do not describe memory inside the segment: "   \
		    "correct them")                                                                \
	ROW(UNSUPPORTED, "this version does not do that yet: leave the option out, or update "     \
			 "tidl on both sides")                                                     \
	ROW(DEVICE, "memory of this device cannot be shared here: copy the tensor to the CPU "     \
		    "first")                                                                       \
	ROW(COPY_NEEDED, "only a copy would do: allow it, or allocate the tensor through the "     \
			 "client")                                                                 \
	ROW(ACCESS,                                                                                \
	    "the memory was published with an access that does not allow this: ask for the "       \
	    "same one, or publish a copy")                                                         \
	ROW(BUSY, "somebody else's hold is in the way: see who with `tidlctl inspect`, and try "   \
		  "again when it is gone")                                                         \
	ROW(GENERATION_GONE, "that generation is no longer published: get the current one")        \
	ROW(CANCELLED, "the request was cancelled by its own client: call again if you still "     \
		       "need it")                                                                  \
	ROW(METADATA, "the metadata are not a JSON object of at most 4096 bytes: correct or "      \
		      "shorten them")                                                              \
	ROW(DESCRIPTORS, "this process is at its limit of open descriptors: close some, or raise " \
			 "`ulimit -n`")                                                            \
	ROW(READ_ONLY, "the memory was attached for reading only: attach it with write or "        \
		       "copy-on-write")                                                            \
	ROW(SYSTEM, "a system call failed unexpectedly: look at the broker's log and the kernel's" \
		    " limits")                                                                     \
	ROW(WRITER_GONE,                                                                           \
	    "who could have made the awaited step has gone: wait again once the writer "           \
	    "is back")                                                                             \
	ROW(RELEASED, "the tensor was released: get it again")                                     \
	ROW(SEGMENT_BAD, "the received memory is not what the broker announced: get it again, "    \
			 "and report this if it happens twice")                                    \
	ROW(NO_BROKER, "no broker answers: start tidld, or check TIDL_SOCKET")                     \
	ROW(BROKER_GONE, "the broker went away: connect again; memory that is mapped stays valid") \
	ROW(CLOSED, "this client was closed: connect again")                                       \
	ROW(PROTOCOL, "the other side broke the protocol: check that both sides are tidl of the "  \
		      "same version, and connect again")                                           \
	ROW(VERSION, "client and broker have no common protocol version: update the older one")    \
	ROW(PEER_REFUSED, "the broker does not serve this uid: run the client in a user "          \
			  "namespace that the broker can see into")                                \
	ROW(BROKER_UNTRUSTED, "the socket belongs to a uid that is not trusted: check its path, "  \
			      "or use a broker of your own uid or root")                           \
	ROW(WRONG_SOCKET, "what listens there is not a tidl broker: check the address and "        \
			  "TIDL_SOCKET")                                                           \
	ROW(AUTOSTART, "a private broker could not be started: check TIDL_DAEMON, or start tidld " \
		       "yourself")

/* A switch without default: the compiler refuses a code of enum tidl_error without a row here. */
static const struct error_row *error_row_find(enum tidl_error code)
{
	switch (code) {
	case TIDL_OK: {
		static const struct error_row row = {"OK", "success"};

		return &row;
	}
#define ERROR_CASE(error_name, error_text)                                                         \
	case TIDL_ERR_##error_name: {                                                              \
		static const struct error_row row = {#error_name, error_text};                     \
                                                                                                   \
		return &row;                                                                       \
	}
		ERROR_TABLE(ERROR_CASE)
#undef ERROR_CASE
	}
	return NULL;
}

const char *tdp_error_name(int code)
{
	const struct error_row *row = error_row_find((enum tidl_error)code);

	return row ? row->name : "UNKNOWN";
}

const char *tdp_error_text(int code)
{
	const struct error_row *row = error_row_find((enum tidl_error)code);

	return row ? row->text
		   : "an error that this version does not know: update tidl, or look at the "
		     "broker's log";
}

int tdp_error_is_known(int code)
{
	return error_row_find((enum tidl_error)code) != NULL;
}

int(tdp_fault_set)(struct tdp_fault *fault, int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(fault->text, sizeof(fault->text), format, arguments);
	va_end(arguments);
	fault->code = code;
	fault->detail = 0;
	tdp_utf8_clean(fault->text);
	return code;
}

static int errno_to_code(int errno_value)
{
	switch (errno_value) {
	case ENOMEM:
		return TIDL_ERR_NO_MEMORY;
	case EMFILE:
		return TIDL_ERR_DESCRIPTORS;
	default:
		return TIDL_ERR_SYSTEM;
	}
}

int(tdp_fault_errno)(struct tdp_fault *fault, int errno_value, const char *format, ...)
{
	const char *description = strerrordesc_np(errno_value);
	va_list arguments;
	size_t length;

	va_start(arguments, format);
	(void)vsnprintf(fault->text, sizeof(fault->text), format, arguments);
	va_end(arguments);
	length = strlen(fault->text);
	if (description != NULL)
		(void)snprintf(fault->text + length, sizeof(fault->text) - length, ": %s",
			       description);
	else
		(void)snprintf(fault->text + length, sizeof(fault->text) - length, ": errno %d",
			       errno_value);
	fault->code = errno_to_code(errno_value);
	tdp_utf8_clean(fault->text);
	return fault->code;
}

int(tdp_fault_code)(struct tdp_fault *fault, int code)
{
	return tdp_fault_set(fault, code, "%s", tdp_error_text(code));
}
