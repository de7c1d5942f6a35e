/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_INSPECT_H
#define CTL_INSPECT_H

#include <tidl/tidl.h>

/* The two forms of an inspection, both on standard output. */
void ctl_inspect_print_text(const struct tidl_inspection *inspection);
void ctl_inspect_print_json(const struct tidl_inspection *inspection);

#endif
