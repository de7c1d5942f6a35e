/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_PATHS_H
#define TDP_PATHS_H

#include "proto/base/attr.h"
#include "proto/base/fault.h"

/* Where sockets are looked for and made. sockaddr_un ends at 108 bytes, the final zero included. */
enum { TDP_PATH_MAX = 108 };

#define TDP_SYSTEM_SOCKET "/run/tidl/tidld.sock"

/*
 * The user's runtime folder for tidl: $XDG_RUNTIME_DIR unless it is another user's, else
 * /run/user/<euid> if that is ours, else /tmp/tidl-<euid>, each with `/tidl` behind it. The folder
 * in /tmp is made 0700 and its owner and mode are checked by lstat, since anybody may have made it
 * first. @create makes the last part too.
 *
 * Returns 0, TIDL_ERR_NOT_FOUND (does not exist and was not to be made), TIDL_ERR_PERMISSION (not
 * ours), TIDL_ERR_LIMIT (too long for a socket's path), TIDL_ERR_SYSTEM.
 */
int tdp_paths_runtime_folder(int create, char ret_path[TDP_PATH_MAX],
			     struct tdp_fault *fault) TDP_MUST_CHECK;

/* `<folder>/<file>`, or TIDL_ERR_LIMIT. */
int tdp_paths_join(const char *folder, const char *file, char ret_path[TDP_PATH_MAX],
		   struct tdp_fault *fault) TDP_MUST_CHECK;

#endif
