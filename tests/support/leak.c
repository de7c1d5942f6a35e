/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a test leaves behind. Fails nothing itself: the macro in the header does. */
#include "tests/support/leak.h"

/* There only in programs built with AddressSanitizer. */
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

void tt_leak_begin(struct tt_leak *leak)
{
	leak->descriptor_count = tt_descriptor_count();
}

int tt_leak_descriptors(const struct tt_leak *leak)
{
	return tt_descriptor_count() - leak->descriptor_count;
}

bool tt_leak_can_see_memory(void)
{
	return __lsan_do_recoverable_leak_check != NULL;
}

bool tt_leak_memory(void)
{
	return tt_leak_can_see_memory() && __lsan_do_recoverable_leak_check() != 0;
}
