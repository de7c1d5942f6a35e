/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/kernel.h"
#include "tests/support/leak.h"

/* Every Criterion test is a process of its own, so each one reads the environment afresh. */

TT_TEST(kernel, has_everything_until_told_otherwise)
{
	unsetenv("TIDL_WITHOUT");
	for (int i = 0; i < TDP_KERNEL_FEATURE_COUNT; i++)
		cr_assert(tdp_kernel_has(i));
	tdp_kernel_forget(TDP_KERNEL_PEERPIDFD);
	cr_assert_not(tdp_kernel_has(TDP_KERNEL_PEERPIDFD));
	cr_assert(tdp_kernel_has(TDP_KERNEL_NOEXEC_SEAL));
}

TT_TEST(kernel, environment_switches_off_one)
{
	setenv("TIDL_WITHOUT", "noexec-seal", 1);
	cr_assert_not(tdp_kernel_has(TDP_KERNEL_NOEXEC_SEAL));
	cr_assert(tdp_kernel_has(TDP_KERNEL_PEERPIDFD));
}

TT_TEST(kernel, environment_switches_off_several)
{
	setenv("TIDL_WITHOUT",
	       ",peerpidfd,,unheard-of,noexec-seal,sealed-shared-map,userfaultfd,wp-unpopulated,",
	       1);
	for (int i = 0; i < TDP_KERNEL_FEATURE_COUNT; i++)
		cr_assert_not(tdp_kernel_has(i));
}

TT_TEST(kernel, environment_wants_whole_names)
{
	setenv("TIDL_WITHOUT", "peer,noexec-seal2,peerpidf", 1);
	for (int i = 0; i < TDP_KERNEL_FEATURE_COUNT; i++)
		cr_assert(tdp_kernel_has(i));
}
