/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INTERRUPT_H
#define TDC_INTERRUPT_H

#include <stdbool.h>
#include <stddef.h>

/* Whom to ask, after a signal, whether to go on waiting. Without a handler: go on. */
struct tdc_interrupt {
	int (*handler)(void *context);
	void *context;
};

/* Ask it. No lock held, since the handler may do anything. */
static inline bool tdc_interrupt_is_asked(const struct tdc_interrupt *interrupt)
{
	return interrupt->handler != NULL && interrupt->handler(interrupt->context) != 0;
}

#endif
