/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_INPLACE_PROVISIONS_H
#define TDC_INPLACE_PROVISIONS_H

#include <stdbool.h>

#include "client/lib/inplace/maps.h"

/*
 * What the way back of moved memory needs of the system and might not get any more by then: kept
 * from the first move until nothing is moved any more. What cannot be had is tried again when it
 * is needed. All with the moves locked (move.h).
 */

/* Something is being moved; not any more. */
void tdc_provisions_take(void);
void tdc_provisions_give_back(void);

/* In a forked child: the parent's would show, and stop, the parent's memory. */
void tdc_provisions_renew(void);

/* To look at the process's maps; NULL with an errno. */
struct tdc_maps_view *tdc_provisions_view(int *ret_error);

/* Time has passed since the last look. */
void tdc_provisions_look_anew(void);

/* The process is at its limit of maps: make room for some. False: there is none left. */
bool tdc_provisions_make_room(void);

#endif
