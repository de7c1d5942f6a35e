/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SUPPORT_MESSAGES_H
#define TT_SUPPORT_MESSAGES_H

#include "proto/wire/message.h"

/*
 * A message of @kind with every field set to something that is neither 0 nor its default. What it
 * points to is constant. TDP_MESSAGE_NONE gives an envelope without body.
 */
struct tdp_message tt_message_sample(enum tdp_message_kind kind);

/*
 * The largest page of an answer that the limits allow: as many rows as fit a page, each with the
 * longest texts, the highest rank and the largest numbers. For LISTING, INSPECTION and GRANTED.
 */
struct tdp_message tt_message_largest(enum tdp_message_kind kind);

#endif
