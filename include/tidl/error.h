/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_ERROR_H
#define TIDL_ERROR_H

#include <tidl/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every result code of libtidl. A function that can fail returns 0 or one of these; the values are
 * also the codes on the wire (negated), so they are never renumbered and never reused.
 *
 * The groups say what is lost, hence what the caller has to rebuild:
 *   -1   .. -99   this call only: correct the arguments or try again
 *   -101 .. -199  the tensor: its handle is dead, the connection is fine
 *   -201 .. -299  the connection: connect again; memory that is already mapped stays valid
 */
enum tidl_error {
	TIDL_OK = 0,

	TIDL_ERR_INVALID_ARGUMENT = -1, /* an argument is outside its documented range */
	TIDL_ERR_NAME_INVALID = -2,	/* the name or pattern breaks the rules for names */
	TIDL_ERR_NOT_FOUND = -3,	/* nothing that the caller may see has this name */
	TIDL_ERR_EXISTS = -4,		/* the name is taken and `replace` was not asked for */
	TIDL_ERR_PERMISSION = -5,	/* owner, group and mode do not allow it */
	TIDL_ERR_TIMEOUT = -6,		/* the time-out passed first */
	TIDL_ERR_INTERRUPTED = -7,	/* the interrupt handler asked to stop waiting */
	TIDL_ERR_QUOTA = -8,		/* a quota of this uid or connection would be exceeded */
	TIDL_ERR_LIMIT = -9,		/* a fixed limit of protocol or broker would be exceeded */
	TIDL_ERR_NO_MEMORY = -10,	/* the system has no memory for it */
	TIDL_ERR_DTYPE = -11,  /* the data type is unknown, or has a width it cannot have */
	TIDL_ERR_LAYOUT = -12, /* rank, shape, strides or offset do not describe valid memory */
	TIDL_ERR_UNSUPPORTED = -13,	/* understood, but not built in this version */
	TIDL_ERR_DEVICE = -14,		/* memory of this device cannot be shared here */
	TIDL_ERR_COPY_NEEDED = -15,	/* only a copy would do, and copying was forbidden */
	TIDL_ERR_ACCESS = -16,		/* the memory was published with another access */
	TIDL_ERR_BUSY = -17,		/* somebody else's hold is in the way */
	TIDL_ERR_GENERATION_GONE = -18, /* that generation is no longer published */
	TIDL_ERR_CANCELLED = -19,	/* the request was cancelled by its own client */
	TIDL_ERR_METADATA = -20,	/* metadata is not a JSON object of at most 4096 bytes */
	TIDL_ERR_DESCRIPTORS = -21,	/* this process is at its limit of open descriptors */
	TIDL_ERR_READ_ONLY = -22,	/* the memory was attached for reading only */
	TIDL_ERR_SYSTEM = -23,		/* a system call failed in a way nobody planned for */
	TIDL_ERR_WRITER_GONE = -24,	/* who could have made the awaited step has gone */

	TIDL_ERR_RELEASED = -101,    /* the tensor was released */
	TIDL_ERR_SEGMENT_BAD = -102, /* the received memory is not what the broker announced */

	TIDL_ERR_NO_BROKER = -201,	  /* no broker answers */
	TIDL_ERR_BROKER_GONE = -202,	  /* the broker went away */
	TIDL_ERR_CLOSED = -203,		  /* this client was closed */
	TIDL_ERR_PROTOCOL = -204,	  /* the other side broke the protocol */
	TIDL_ERR_VERSION = -205,	  /* no common protocol version */
	TIDL_ERR_PEER_REFUSED = -206,	  /* the broker does not serve this uid */
	TIDL_ERR_BROKER_UNTRUSTED = -207, /* the socket belongs to a uid that is not trusted */
	TIDL_ERR_WRONG_SOCKET = -208,	  /* what listens there is not a tidl broker */
	TIDL_ERR_AUTOSTART = -209	  /* a private broker could not be started */
};

/*
 * tidl_error_name - the stable name of a code, without prefix: "NOT_FOUND".
 * Unknown codes give "UNKNOWN". Static storage; any thread; never blocks.
 */
TIDL_API const char *tidl_error_name(int code);

/*
 * tidl_error_text - one general sentence for a code: what it means and what to do next.
 * tidl_last_error() is more precise. Static storage; any thread; never blocks.
 */
TIDL_API const char *tidl_error_text(int code);

/*
 * tidl_last_error - the sentence of the last call that failed in the calling thread.
 *
 * Names the object concerned and what to do next. Empty string when nothing failed yet. The text
 * stays valid until the next libtidl call of the same thread. Any thread; never blocks.
 */
TIDL_API const char *tidl_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
