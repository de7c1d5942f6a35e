/* SPDX-License-Identifier: Apache-2.0 */
/* tidld: parse, set up, run, tear down. */
#include <stdio.h>
#include <stdlib.h>

#include <tidl/version.h>

#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/server.h"
#include "daemon/setup.h"

enum { EXIT_USAGE = 2 };

static int fail(const struct tdp_fault *fault, int status)
{
	fprintf(stderr, "tidld: %s\n", fault->text);
	return status;
}

int main(int argc, char **argv)
{
	struct tdd_options options;
	struct tdd_server *server;
	struct tdp_fault fault;

	if (tdd_options_parse(argc, argv, &options, &fault) < 0)
		return fail(&fault, EXIT_USAGE);
	if (options.wants_help)
		return tdd_options_print_help(stdout), EXIT_SUCCESS;
	if (options.wants_version)
		return puts("tidld " TIDL_VERSION), EXIT_SUCCESS;
	int r = tdd_setup(&options, &server, &fault);

	if (r == TIDL_ERR_EXISTS && options.detach)
		return puts("ready"), EXIT_SUCCESS;
	if (r < 0)
		return fail(&fault, EXIT_FAILURE);
	tdd_server_run(server);
	tdd_server_free(server);
	tdd_log(TDD_LOG_INFO, "stopped");
	tdd_log_close();
	return EXIT_SUCCESS;
}
