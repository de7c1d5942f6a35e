/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that happens once, at start. This is the only part that looks at the machine. */
#include "daemon/setup.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tidl/version.h>

#include "daemon/detach.h"
#include "daemon/limits.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/policy.h"
#include "proto/base/fd.h"

/* The loop keeps an array over descriptor numbers, so the millions that some containers allow would
 * only cost memory. */
enum { DESCRIPTOR_LIMIT_MAX = 1 << 20 };

static int raise_descriptor_limit(uint64_t *ret_limit, struct tdp_fault *fault)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return tdp_fault_errno(fault, errno, "cannot ask for RLIMIT_NOFILE");
	limit.rlim_cur =
		limit.rlim_max < DESCRIPTOR_LIMIT_MAX ? limit.rlim_max : DESCRIPTOR_LIMIT_MAX;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return tdp_fault_errno(fault, errno, "cannot raise RLIMIT_NOFILE");
	if (limit.rlim_cur < TDD_DESCRIPTORS_MIN)
		return tdp_fault_set(fault, TIDL_ERR_LIMIT,
				     "only %" PRIu64 " descriptors are allowed (RLIMIT_NOFILE): "
				     "tidld needs %d",
				     (uint64_t)limit.rlim_cur, TDD_DESCRIPTORS_MIN);
	*ret_limit = limit.rlim_cur;
	return 0;
}

/* A memfd counts as a file: beyond `ulimit -f` its creation would end the broker by SIGXFSZ. With
 * the signal ignored what the hard limit forbids fails with EFBIG, which one client is told. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_FSIZE, &limit);
}

/* A broker in the background must not keep its starter's pipes, locks and terminals alive. */
static void let_go_of_descriptors(void)
{
	closefrom(STDERR_FILENO + 1);
}

static uint32_t find_admin_gid(void)
{
	const struct group *group = getgrnam("tidl");

	return group ? group->gr_gid : TDD_GID_NONE;
}

static uint64_t memory_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int make_config(const struct tdd_options *options, struct tdd_server_config *ret_config,
		       struct tdp_fault *fault)
{
	uint64_t memory = memory_bytes();

	*ret_config = (struct tdd_server_config){
		.is_private = options->is_private,
		.idle_exit_ms = options->idle_exit_ms,
		.empty_exit_ms = options->empty_exit_ms,
		.pin_ms = options->pin_ms,
		.owner_grace_ms = options->owner_grace_ms,
		.quota_total_bytes = tdd_share_bytes(&options->quota_total, memory),
		.quota_uid_bytes = tdd_share_bytes(&options->quota_uid, memory),
		.admin_gid = find_admin_gid(),
		.overflow_uid = tdd_peer_overflow_uid(),
	};
	return raise_descriptor_limit(&ret_config->descriptor_limit, fault);
}

static int open_listener(const struct tdd_options *options, struct tdd_listener *ret_listener,
			 struct tdp_fault *fault)
{
	char path[TDP_PATH_MAX];
	int r;

	if (!options->socket && tdd_listener_is_activated())
		return tdd_listener_adopt(ret_listener, fault);
	r = tdd_listener_choose_path(options->socket, options->is_private, path, fault);
	if (r < 0)
		return r;
	return tdd_listener_open(path, options->is_private, ret_listener, fault);
}

static int start_server(const struct tdd_server_config *config, struct tdd_listener *listener,
			struct tdd_server **ret_server, struct tdp_fault *fault)
{
	struct tdd_server *server;
	int r = tdd_server_new(config, &server, fault);

	if (r < 0)
		return r;
	r = tdd_server_watch_signals(server, fault);
	if (r == 0)
		r = tdd_server_listen(server, listener, fault);
	if (r < 0) {
		tdd_server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

static int start(const struct tdd_options *options, struct tdd_listener *listener,
		 struct tdd_server **ret_server, struct tdp_fault *fault)
{
	struct tdd_server_config config;
	int report_fd = -1;
	int r = make_config(options, &config, fault);

	if (r == 0 && options->detach)
		r = tdd_detach_fork(&report_fd, fault);
	if (r == 0 && options->detach)
		r = tdd_listener_sign(listener, fault);
	if (r < 0) {
		tdp_fd_close(report_fd);
		return r;
	}
	r = start_server(&config, listener, ret_server, fault);
	if (r < 0 || !options->detach) {
		tdp_fd_close(report_fd);
		return r;
	}
	r = tdd_detach_ready(report_fd, fault);
	if (r < 0)
		*ret_server = tdd_server_free(*ret_server);
	return r;
}

int tdd_setup(const struct tdd_options *options, struct tdd_server **ret_server,
	      struct tdp_fault *fault)
{
	struct tdd_listener listener = {.fd = -1};
	int r;

	if (options->detach)
		tdd_detach_signals();
	/* Sockets are written with MSG_NOSIGNAL; this is for a log whose reader has gone. */
	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	if (options->detach && (options->socket || !tdd_listener_is_activated()))
		let_go_of_descriptors();
	tdd_log_set_level((enum tdd_log_level)options->log_level);
	if (options->log_file) {
		r = tdd_log_open(options->log_file, fault);
		if (r < 0)
			return r;
	}
	r = open_listener(options, &listener, fault);
	if (r < 0)
		return r;
	r = start(options, &listener, ret_server, fault);
	if (r < 0) {
		(void)tdd_listener_try_leave(&listener);
		tdd_listener_deinit(&listener);
		return r;
	}
	tdd_log(TDD_LOG_INFO, "tidld %s serves at %s", TIDL_VERSION,
		listener.path[0] ? listener.path : "the socket it was passed");
	return 0;
}
