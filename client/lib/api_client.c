/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions of a client: check arguments, call inward, keep the sentence of a refusal. */
#include "include/tidl/client.h"

#include "client/lib/call.h"
#include "client/lib/client.h"
#include "client/lib/conn.h"
#include "client/lib/deadline.h"
#include "client/lib/inplace/listed.h"
#include "client/lib/inplace/uses.h"
#include "client/lib/pending.h"
#include "client/lib/report.h"

enum { CONNECT_TIMEOUT_DEFAULT_MS = 5000 };

static int client_connect(const struct tidl_connect_options *options,
			  struct tidl_client **ret_client, struct tdp_fault *fault)
{
	int64_t timeout_ms = options->timeout_ms ? options->timeout_ms : CONNECT_TIMEOUT_DEFAULT_MS;
	struct tdc_link_request request = {
		.address = options->address,
		.client_name = options->client_name,
		.daemon_path = options->daemon_path,
		.may_autostart = options->no_autostart == 0,
		.patience = {.deadline = tdc_deadline_after(timeout_ms),
			     .interrupt = {.handler = options->interrupt_handler,
					   .context = options->interrupt_context}},
	};
	struct tdc_link link = {.fd = -1};
	int r = tdc_link_open(&request, &link, fault);

	if (r < 0)
		return r;
	r = tdc_client_new(&link, options->client_name, ret_client, fault);
	tdc_link_close(&link);
	if (r == 0)
		(*ret_client)->interrupt = request.patience.interrupt;
	return r;
}

int tidl_connect(const struct tidl_connect_options *options, struct tidl_client **ret_client)
{
	struct tidl_connect_options complete = {.size = sizeof(complete)};
	struct tdp_fault fault = {.code = 0};
	int r;

	if (ret_client == NULL)
		return tdc_report(tdc_refuse_null("ret_client", &fault), &fault);
	r = tdc_options_copy(options, &complete, sizeof(complete), &fault);
	if (r == 0)
		r = client_connect(&complete, ret_client, &fault);
	return tdc_report(r, &fault);
}

int tidl_disconnect(struct tidl_client *client)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		return 0;
	tdc_client_close(client);
	r = tdc_moved_end_all(client, true, &fault);
	tdc_listed_close(client);
	(void)tdc_client_unref(client);
	return tdc_report(r, &fault);
}

void tidl_close(struct tidl_client *client)
{
	struct tdp_fault unused;

	if (client == NULL)
		return;
	tdc_client_end(client);
	/* tidl_disconnect() tries again, and tells. */
	(void)!tdc_moved_end_all(client, false, &unused);
}

int tidl_fd(struct tidl_client *client)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	tdc_client_lock(client);
	r = client->state == TDC_CLIENT_STATE_OPEN ? tdc_attention_fd(client, &fault)
						   : tdc_client_refuse(client, &fault);
	tdc_client_unlock(client);
	return tdc_report(r, &fault);
}

int tidl_dispatch(struct tidl_client *client)
{
	struct tdp_fault fault = {.code = 0};
	int r;

	if (client == NULL)
		return tdc_report(tdc_refuse_null("client", &fault), &fault);
	r = tdc_pending_dispatch(client, &fault);
	tdc_moved_reap(client);
	return tdc_report(r, &fault);
}

const struct tidl_broker_info *tidl_broker(const struct tidl_client *client)
{
	return client ? &client->broker : NULL;
}

const char *tidl_last_error(void)
{
	return tdc_report_last();
}
