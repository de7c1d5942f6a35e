/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_STDIO_GUARD_H
#define TDC_STDIO_GUARD_H

/*
 * Move a new descriptor out of 0 to 2, where a program that runs with closed stdin, stdout or
 * stderr would write into it. Takes and returns -1 with errno set; close-on-exec stays.
 */
int tdc_above_stdio(int fd);

#endif
