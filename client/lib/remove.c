/* SPDX-License-Identifier: Apache-2.0 */
/* Names that go. */
#include "client/lib/remove.h"

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/inplace/uses.h"

static bool name_is_own(struct tidl_client *client, const struct tdc_name *name)
{
	bool is_own;

	tdc_client_lock(client);
	is_own = !name->has_owner || name->owner_uid == client->broker.uid;
	tdc_client_unlock(client);
	return is_own;
}

int tdc_remove(struct tidl_client *client, const struct tdc_name *name, struct tdp_fault *fault)
{
	struct tdp_message request = {
		.kind = TDP_MESSAGE_REMOVE,
		.remove = {.name = name->path,
			   .has_owner = name->has_owner,
			   .owner_uid = name->owner_uid},
	};
	tdc_auto_reply *reply = NULL;
	int r = tdc_call(client, &request, TDC_ANSWER_DUE, TDP_MESSAGE_DONE, &reply, fault);

	if (r == 0 && name_is_own(client, name))
		tdc_uses_drop(client, name->path, 0);
	return r;
}
