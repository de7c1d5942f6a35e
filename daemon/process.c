/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a peer's process. Display only: rights are decided by the session's subject. */
#include "daemon/process.h"

#include <stdlib.h>
#include <string.h>

struct tdd_process *tdd_process_new(uint32_t uid, uint32_t gid, int64_t pid)
{
	struct tdd_process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->ref_count = 1;
	process->uid = uid;
	process->gid = gid;
	process->pid = pid;
	process->is_connected = true;
	return process;
}

struct tdd_process *tdd_process_ref(struct tdd_process *process)
{
	process->ref_count++;
	return process;
}

struct tdd_process *tdd_process_unref(struct tdd_process *process)
{
	if (!process || --process->ref_count > 0)
		return NULL;
	free(process->name);
	free(process->command);
	free(process->cgroup);
	free(process);
	return NULL;
}

int tdd_process_describe(struct tdd_process *process, const char *name, const char *command,
			 const char *cgroup, struct tdp_fault *fault)
{
	process->name = strdup(name);
	process->command = strdup(command);
	process->cgroup = strdup(cgroup);
	if (!process->name || !process->command || !process->cgroup)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	return 0;
}

struct tdp_process tdd_process_view(const struct tdd_process *process)
{
	return (struct tdp_process){
		.uid = process->uid,
		.gid = process->gid,
		.pid = process->pid,
		.name = process->name ? process->name : "",
		.command = process->command ? process->command : "",
		.cgroup = process->cgroup ? process->cgroup : "",
		.is_connected = process->is_connected,
	};
}
