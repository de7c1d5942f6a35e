/* SPDX-License-Identifier: Apache-2.0 */
/* A name for moved memory: which of it a publish is about, and its entries in their lists. */
#include "client/lib/inplace/naming.h"

#include <stdlib.h>

#include "client/lib/client.h"
#include "client/lib/inplace/uses.h"

static bool naming_has(const struct tdc_naming *naming, const struct tdc_moved *moved)
{
	/* Mostly the last one. */
	for (size_t i = naming->count; i-- > 0;) {
		if (naming->moved[i] == moved)
			return true;
	}
	return false;
}

int tdc_naming_init(struct tdc_naming *naming, const char *path, size_t segment_count,
		    struct tdc_segment *const *segments, struct tdp_fault *fault)
{
	*naming = (struct tdc_naming){
		.moved = calloc(segment_count + 1, sizeof(struct tdc_moved *)),
		.uses = calloc(segment_count + 1, sizeof(struct tdc_moved_use *)),
	};
	for (size_t i = 0; naming->moved != NULL && naming->uses != NULL; i++) {
		struct tdc_moved *moved;

		if (i == segment_count)
			return 0;
		moved = segments[i]->moved;
		if (moved == NULL || naming_has(naming, moved))
			continue;
		naming->uses[naming->count] = tdc_use_new(path);
		if (naming->uses[naming->count] == NULL)
			break;
		naming->moved[naming->count++] = moved;
	}
	tdc_naming_deinit(naming);
	return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
}

void tdc_naming_finish(struct tidl_client *client, struct tdc_naming *naming, const char *path,
		       uint64_t generation, struct tdc_moved *fresh)
{
	for (size_t i = 0; i < naming->count; i++) {
		tdc_use_enter(client, naming->moved[i], naming->uses[i], generation);
		naming->uses[i] = NULL;
	}
	tdc_uses_drop(client, path, generation);
	if (fresh == NULL)
		return;
	tdc_client_lock(client);
	fresh->is_busy = false;
	tdc_client_unlock(client);
}

void tdc_naming_deinit(struct tdc_naming *naming)
{
	for (size_t i = 0; naming->uses != NULL && i < naming->count; i++)
		free(naming->uses[i]);
	free(naming->uses);
	free(naming->moved);
	*naming = (struct tdc_naming){.count = 0};
}
