/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/import.h"

#include "tests/support/leak.h"
#include "tests/unit/client/support/foreign.h"

static float data[64];
static const int64_t shape[] = {4, 3};

TT_TEST(import, a_compact_tensor)
{
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
	cr_assert_eq((const float *)import.first, data);
	cr_assert_eq(import.begin, (uintptr_t)data);
	cr_assert_eq(import.end, (uintptr_t)(data + 12));
	cr_assert(import.extent.is_compact);
	cr_assert_not(import.is_readonly);
	cr_assert_eq(tdc_import_legacy(&foreign.legacy, &import, &fault), 0);
	cr_assert_eq(import.end, (uintptr_t)(data + 12));
	cr_assert_eq(foreign.deleted, 0);
}

TT_TEST(import, byte_offset_and_negative_strides)
{
	static const int64_t strides[] = {3, -1};
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, strides);
	foreign.managed.dl_tensor.byte_offset = 2 * sizeof(float);
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
	cr_assert_eq((const float *)import.first, data + 2);
	cr_assert_eq(import.begin, (uintptr_t)data);
	cr_assert_eq(import.end, (uintptr_t)(data + 12));
	cr_assert_not(import.extent.is_compact);
}

TT_TEST(import, flags)
{
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	foreign.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED |
				DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED | 1ULL << 40;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
	cr_assert(import.is_readonly);
	cr_assert_eq(import.layout.flags, TDP_LAYOUT_SUBBYTE_PADDED);
}

TT_TEST(import, of_a_higher_major_version_nothing_is_read)
{
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	foreign.managed.version.major = 2;
	foreign.managed.dl_tensor.shape = (int64_t *)8;
	foreign.managed.dl_tensor.ndim = 64;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), TIDL_ERR_UNSUPPORTED);
	cr_assert_eq(foreign.deleted, 0, "a refused tensor stays with its owner");
	foreign.managed.version = (DLPackVersion){.major = 1, .minor = 99};
	foreign.managed.dl_tensor = foreign.legacy.dl_tensor;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
}

TT_TEST(import, devices)
{
	static const int accepted[] = {kDLCPU, kDLCUDAHost, kDLROCMHost};
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	for (int type = -1; type <= 25; type++) {
		int expected = TIDL_ERR_DEVICE;

		for (size_t i = 0; i < TDP_ARRAY_LENGTH(accepted); i++) {
			if (accepted[i] == type)
				expected = 0;
		}
		memcpy(&foreign.managed.dl_tensor.device.device_type, &type, sizeof(type));
		cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), expected, "%d", type);
	}
}

TT_TEST(import, empty_tensors_need_no_address)
{
	static const int64_t empty[] = {4, 0};
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, (void *)8, 2, empty, NULL);
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
	cr_assert(import.extent.is_empty);
	cr_assert_null(import.first);
	foreign.managed.dl_tensor.data = NULL;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
}

TT_TEST(import, rank_0)
{
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 0, NULL, NULL);
	foreign.managed.dl_tensor.shape = NULL;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), 0);
	cr_assert_eq(import.end - import.begin, sizeof(float));
}

struct bad_case {
	const char *what;
	void *address;
	int32_t ndim;
	uint64_t byte_offset;
	int64_t extent;
	int64_t stride;
	uint8_t bits;
	int expected;
};

TT_TEST(import, nonsense_is_refused)
{
	static const struct bad_case cases[] = {
		{"negative rank", data, -1, 0, 4, 1, 32, TIDL_ERR_LAYOUT},
		{"high rank", data, 65, 0, 1, 1, 32, TIDL_ERR_LAYOUT},
		{"huge rank", data, INT32_MAX, 0, 1, 1, 32, TIDL_ERR_LAYOUT},
		{"no address", NULL, 1, 0, 4, 1, 32, TIDL_ERR_LAYOUT},
		{"offset overflow", data, 1, UINT64_MAX, 4, 1, 32, TIDL_ERR_LAYOUT},
		{"below 0", (void *)8, 1, 0, 4, -8, 32, TIDL_ERR_LAYOUT},
		{"above the top", (void *)(UINTPTR_MAX - 8), 1, 0, 4, 8, 32, TIDL_ERR_LAYOUT},
		{"negative extent", data, 1, 0, -4, 1, 32, TIDL_ERR_LAYOUT},
		{"huge extent", data, 1, 0, INT64_MAX, INT64_MAX, 32, TIDL_ERR_LAYOUT},
		{"lowest stride", data, 1, 0, INT64_MAX, INT64_MIN, 32, TIDL_ERR_LAYOUT},
		{"float24", data, 1, 0, 4, 1, 24, TIDL_ERR_DTYPE},
	};

	for (size_t i = 0; i < TDP_ARRAY_LENGTH(cases); i++) {
		struct tt_foreign foreign;
		struct tdc_import import;
		struct tdp_fault fault = {0};
		int r;

		tt_foreign_init(&foreign, cases[i].address, 1, &cases[i].extent, &cases[i].stride);
		foreign.managed.dl_tensor.ndim = cases[i].ndim;
		foreign.managed.dl_tensor.byte_offset = cases[i].byte_offset;
		foreign.managed.dl_tensor.dtype.bits = cases[i].bits;
		r = tdc_import(&foreign.managed, &import, &fault);
		cr_assert_eq(r, cases[i].expected, "%s: %d", cases[i].what, r);
		cr_assert_str_not_empty(fault.text);
		cr_assert_eq(foreign.deleted, 0);
	}
}

TT_TEST(import, a_shape_must_be_there)
{
	struct tt_foreign foreign;
	struct tdc_import import;
	struct tdp_fault fault;

	tt_foreign_init(&foreign, data, 2, shape, NULL);
	foreign.managed.dl_tensor.shape = NULL;
	cr_assert_eq(tdc_import(&foreign.managed, &import, &fault), TIDL_ERR_LAYOUT);
}
