/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDD_LIMITS_H
#define TDD_LIMITS_H

/* Every limit of the broker, with its reason. Limits of the protocol: proto/wire/limits.h. */

enum {
	/* Descriptors that stay free: one full packet that must be received to be refused, and some
	 * for the listener, the loop, the log and the lock file. */
	TDD_DESCRIPTORS_RESERVED = 253 + 67,

	/* A socket and a pidfd. */
	TDD_DESCRIPTORS_PER_SESSION = 2,

	/* Connections that memory leaves room for, however much of it there is, so that one can
	 * connect to remove something: of all users together, and of the one whose memory it is;
	 * and those that others leave to the broker's own uid and root, who can list, remove and
	 * stop. */
	TDD_SESSIONS_KEPT = 64,
	TDD_SESSIONS_KEPT_PER_UID = 8,
	TDD_ADMIN_SESSIONS_KEPT = 8,

	/* What a broker can work with at all: below this nothing would be left to serve with. */
	TDD_DESCRIPTORS_MIN =
		TDD_DESCRIPTORS_RESERVED + TDD_SESSIONS_KEPT * TDD_DESCRIPTORS_PER_SESSION + 64,

	/* Connections of one uid: several thousand-process jobs, but not all descriptors. */
	TDD_SESSIONS_PER_UID = 8192,

	/* Leases and allocations, a bundle's counted by its segments: what a data loader that
	   attaches every sample needs. */
	TDD_HOLDS_PER_SESSION = 65536,
	TDD_HOLDS_PER_UID = 1048576,

	/* Names of one uid, its replaced generations included; descriptors end earlier as a rule.
	 */
	TDD_PUBLICATIONS_PER_UID = 1048576,

	/* Tensors in all publications of one uid: what the broker remembers of one is a few hundred
	 * bytes at most. */
	TDD_TENSORS_PER_UID = 4 << 20,

	/* Parked requests: one for each thread of a large process. */
	TDD_WAITS_PER_SESSION = 1024,
	TDD_WAITS_PER_UID = 16384,

	/* What answering those who waited for a name may take in one turn of the loop, in segments
	 * handed out: half a millisecond. An answer takes as long as a few segments by itself. */
	TDD_WAKE_STEPS = 1024,
	TDD_STEPS_PER_WAKE = 8,
	/* Who wants a part of a bundle has all its rows looked at: keys or rows in one step. */
	TDD_ROWS_PER_WAKE_STEP = 4,
	/* How many are answered, when a name is about to go, before anybody asks whether it takes
	 * too long; and what such a step is of those in daemon/work.h. */
	TDD_WAKES_PER_LOOK = 16,
	TDD_WORK_PER_WAKE_STEP = 512,

	/* Generations that one uid keeps for tensors on their way, each for the pin time: a queue
	 * of a data loader, a thousand a second. */
	TDD_PINS_PER_UID = 65536,

	/* Watches: some for each part of a large program. */
	TDD_WATCHES_PER_SESSION = 256,
	TDD_WATCHES_PER_UID = 4096,

	/* Events that a client has not taken yet: of one watch, and of all together, at some 100
	 * bytes each. Beyond that the watch gets one LOST. */
	TDD_EVENTS_PER_WATCH = 1024,
	TDD_EVENTS_PER_SESSION = 4096,
	TDD_EVENTS_PER_UID = 65536,

	/* Events sent to one client in one turn of the loop. */
	TDD_EVENTS_PER_TURN = 64,

	/* What all watches of one uid may cost in one turn, in steps of the pattern matcher of
	 * about a nanosecond: 1 ms. One visit, and one event for somebody, take as long as some. */
	TDD_WATCH_STEPS = 1 << 20,
	TDD_WATCH_VISIT_STEPS = 32,
	TDD_WATCH_EVENT_STEPS = 64,

	/* Work in one turn of the loop, in steps of about a nanosecond (daemon/work.h). What one
	 * connection may have done at once: some ordinary requests; and what all of one uid may, so
	 * that a thousand connections of one do not make others wait. Whoever uses more stands in
	 * line, for as many turns as it takes to pay that back, but no more than some. */
	TDD_SESSION_TURN_STEPS = 1 << 16,
	TDD_UID_TURN_STEPS = 1 << 19,
	TDD_DEBT_TURNS = 16,

	/* Of what waits in line, and of what ends by itself: half a millisecond, which is what
	 * everybody else waits for that; and after how much somebody else of the line is next. */
	TDD_LINE_STEPS = 1 << 19,
	TDD_SLICE_STEPS = 1 << 17,

	/* What things take: to receive a packet and answer it, to unpack a byte of it, to open or
	 * close a connection. */
	TDD_PACKET_STEPS = 1 << 12,
	TDD_BYTE_STEPS = 4,
	TDD_SESSION_STEPS = 1 << 14,
	/* To give up a hold, a wait, a watch, an event; to look at an id that is not known; and for
	 * each segment or row that something has. */
	TDD_DROP_STEPS = 256,
	TDD_LOOK_STEPS = 16,
	TDD_PART_STEPS = 64,
	/* To look at one key, or at one row of a bundle with its key; and how much is read from a
	 * descriptor in a step. */
	TDD_ROW_STEPS = 256,
	TDD_BYTES_PER_READ_STEP = 4,

	/* Replies that a client has not read yet. With so many its requests wait, too, until it
	 * reads on: it may have asked for much at once, or been interrupted again and again. */
	TDD_OUTBOX_LONG_PACKETS = 512,
	TDD_OUTBOX_LONG_BYTES = 2 << 20,

	/* Beyond that there are answers to what was parked. A client that does not read them either
	 * is dropped, so that it costs others nothing. */
	TDD_OUTBOX_PACKETS = TDD_OUTBOX_LONG_PACKETS + TDD_WAITS_PER_SESSION,
	TDD_OUTBOX_BYTES_PER_SESSION = 4 << 20,
	TDD_OUTBOX_BYTES_PER_UID = 64 << 20,

	/* Clients who were blocked and are tried again in one turn; and looks, in one turn, at
	 * whether what is on its way to some client has arrived: a third of a microsecond each. */
	TDD_RETRIES_PER_TURN = 64,
	TDD_FLIGHT_LOOKS = 256,

	/* Received descriptors of one uid that a worker thread has not closed yet. Closing can hang
	 * for ever (FUSE); a uid that makes it hang is refused from here on. */
	TDD_SUSPECTS_PER_UID = 2 * 253,

	/* Segments that one connection wants back for its next copies: a few frames under way, and
	 * few enough to look at all of them with each publish. */
	TDD_POOL_PER_SESSION = 16,

	/* Of a publication: a walk of some microseconds. */
	TDD_LEASES_PER_MILESTONE = 1024,

	/* Publications that one LIST request looks at: about as long as a packet takes to pack. */
	TDD_LIST_SCAN = 256,
	/* The same in steps of the pattern matcher, for long patterns over long names. */
	TDD_LIST_STEPS = 1 << 18,

	/* New connections taken in one turn of the loop, so that others get their turn. One packet
	 * of each session is read in one turn: the loop polls level-triggered and comes back. */
	TDD_ACCEPTS_PER_TURN = 16,

	/* The kernel's own upper limit (net.core.somaxconn) cuts it. */
	TDD_LISTEN_BACKLOG = 4096,

	/* Segments whose descriptors are closed in one turn of the loop: a fraction of a
	 * millisecond. With each new one as many of those that wait as keep descriptors within what
	 * is charged.
	 */
	TDD_CLOSES_PER_TURN = 64,
	TDD_CLOSES_PER_SEGMENT = 2,
	/* From here on freeing the memory alone takes longer than that. */
	TDD_LARGE_CLOSE_BYTES = 4 << 20,

	/* Packets thrown away when a session closes; a socket buffer holds about 280 small ones. */
	TDD_DRAIN_PACKETS = 1024,

	/* Records about misbehaving clients of one uid in a minute. */
	TDD_LOG_RECORDS_PER_MINUTE = 20,

	/* Peer-supplied text in a log record. */
	TDD_LOG_QUOTE_BYTES = 160,
};

/* Milliseconds. */
enum {
	/* Pause of the listener when the system is out of descriptors or memory. */
	TDD_ACCEPT_PAUSE_MS = 100,

	/* How often blocked queues are tried again; doubles up to the second while nothing moves.
	 */
	TDD_RETRY_MIN_MS = 1,
	TDD_RETRY_MAX_MS = 64,

	/* Between tries to take the start lock before exiting; somebody else's start takes less. */
	TDD_EXIT_LOCK_RETRY_MS = 20,

	/* What a broker waits for its first client at least: whoever started it may take as long to
	 * connect. */
	TDD_FIRST_CLIENT_MS = 5 * 1000,

	/* How long a pin keeps a generation: a tensor's time in a queue. */
	TDD_PIN_MS = 60 * 1000,

	/* What an owner owned stays that long after its death, for others and for a new start of
	 * it. */
	TDD_OWNER_GRACE_MS = 2 * 1000,

	/* A private broker with no client and nothing published; and one with publications. */
	TDD_EMPTY_EXIT_MS = 5 * 1000,
	TDD_IDLE_EXIT_MS = 600 * 1000,
};

enum {
	/* Tries to take the start lock after which a stopping broker leaves its socket behind: the
	 * next start removes it. */
	TDD_EXIT_LOCK_TRIES = 50,

	/* Per cent of the machine's memory: memfds outlive processes, so the OOM killer cannot
	 * free them. */
	TDD_QUOTA_TOTAL_PERCENT = 50,
	TDD_QUOTA_UID_PERCENT = 25,

	/* Share of RLIMIT_NOFILE that may be in flight: descriptors in flight count on the
	 * broker's uid, and beyond its limit every send of that uid fails. */
	TDD_FLIGHT_SHARE = 4,
};

#endif
