/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_RECEIVE_H
#define TDC_RECEIVE_H

#include "client/lib/reply.h"
#include "proto/base/attr.h"

struct tidl_client;

enum tdc_receive_result {
	TDC_RECEIVE_NOTHING, /* the socket was empty */
	TDC_RECEIVE_HANDLED, /* one packet went to its call, or needed none */
	TDC_RECEIVE_BROKEN,  /* the connection is over, and every call knows */
};

/*
 * Receive one packet without waiting and hand it to the call it answers, by exchanging that call's
 * reply with @reply. What is left in @reply is to be reset with no lock held, since closing foreign
 * descriptors may take time. Client locked and open; only while no other call leads.
 */
enum tdc_receive_result tdc_receive(struct tidl_client *client,
				    struct tdc_reply **reply) TDP_MUST_CHECK;

#endif
