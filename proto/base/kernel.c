/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide memory of what this kernel refuses. It probes nothing itself: the code that
 * makes a call reports here. Any thread.
 */
#include "proto/base/kernel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const feature_names[TDP_KERNEL_FEATURE_COUNT] = {
	[TDP_KERNEL_NOEXEC_SEAL] = "noexec-seal",
	[TDP_KERNEL_PEERPIDFD] = "peerpidfd",
	[TDP_KERNEL_SEALED_SHARED_MAP] = "sealed-shared-map",
	[TDP_KERNEL_USERFAULTFD] = "userfaultfd",
	[TDP_KERNEL_WP_UNPOPULATED] = "wp-unpopulated",
};

static atomic_bool is_forgotten[TDP_KERNEL_FEATURE_COUNT];
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static void feature_forget_by_name(const char *name, size_t length)
{
	for (int i = 0; i < TDP_KERNEL_FEATURE_COUNT; i++) {
		if (strlen(feature_names[i]) == length && !memcmp(feature_names[i], name, length))
			atomic_store(&is_forgotten[i], true);
	}
}

static void environment_read(void)
{
	const char *list = secure_getenv("TIDL_WITHOUT");

	while (list != NULL && *list != '\0') {
		size_t length = strcspn(list, ",");

		feature_forget_by_name(list, length);
		list += length;
		if (*list == ',')
			list++;
	}
}

bool tdp_kernel_has(enum tdp_kernel_feature feature)
{
	(void)pthread_once(&environment_once, environment_read);
	return !atomic_load(&is_forgotten[feature]);
}

void tdp_kernel_forget(enum tdp_kernel_feature feature)
{
	atomic_store(&is_forgotten[feature], true);
}
