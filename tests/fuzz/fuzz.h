/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FUZZ_FUZZ_H
#define TT_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The entry of a target, by libFuzzer's name. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold for every input; stays on in every build. */
#define TT_FUZZ_EXPECT(condition)                                                                  \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__,         \
				      #condition);                                                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
