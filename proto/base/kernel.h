/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_KERNEL_H
#define TDP_BASE_KERNEL_H

#include <stdbool.h>

/*
 * What newer kernels offer beyond Linux 6.1, the oldest one supported. The code that makes a call
 * remembers here that the kernel refused it; the next time the fall-back is taken directly.
 *
 * Tests force a call off with tdp_kernel_forget(), or from outside with the environment variable
 * TIDL_WITHOUT, a comma-separated list of the names below.
 */
enum tdp_kernel_feature {
	TDP_KERNEL_NOEXEC_SEAL, /* "noexec-seal": MFD_NOEXEC_SEAL, 6.3 */
	TDP_KERNEL_PEERPIDFD,	/* "peerpidfd": SO_PEERPIDFD, 6.5 */
	/* "sealed-shared-map": shared, read-only maps of what is sealed against writing; some
	 * kernels before 6.7 refuse them */
	TDP_KERNEL_SEALED_SHARED_MAP,
	TDP_KERNEL_USERFAULTFD,	   /* "userfaultfd": not everywhere (Docker refuses it) */
	TDP_KERNEL_WP_UNPOPULATED, /* "wp-unpopulated": its UFFD_FEATURE_WP_UNPOPULATED, 6.4 */
	TDP_KERNEL_FEATURE_COUNT
};

bool tdp_kernel_has(enum tdp_kernel_feature feature);
void tdp_kernel_forget(enum tdp_kernel_feature feature);

#endif
