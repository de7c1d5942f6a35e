/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDC_WRITERS_H
#define TDC_WRITERS_H

enum { TDC_WRITERS_TEXT_BYTES = 128 };

/*
 * Who has the memory of @fd mapped for writing, as far as this process may know: "process 4711",
 * "this process" or, when nobody can be seen, what else it can be. For a sentence that explains a
 * refusal; reads /proc and takes its time.
 */
void tdc_writers_describe(int fd, char ret_text[TDC_WRITERS_TEXT_BYTES]);

#endif
