/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "proto/base/fault.h"
#include "proto/names.h"
#include "tests/support/leak.h"

TT_TEST(fault, every_code_has_a_name_and_a_sentence)
{
	int known = 0;

	for (int code = -300; code <= 0; code++) {
		const char *name = tdp_error_name(code);
		const char *text = tdp_error_text(code);

		if (!tdp_error_is_known(code)) {
			cr_assert_str_eq(name, "UNKNOWN");
			continue;
		}
		known++;
		for (const char *c = name; *c; c++)
			cr_assert(isupper(*c) || *c == '_', "%s", name);
		cr_assert_lt(strlen(text), TDP_FAULT_TEXT_MAX);
		/* What it means, then what to do next. */
		if (code != 0)
			cr_assert_not_null(strchr(text, ':'), "%s: %s", name, text);
	}
	/* 24 of the call, 2 of the tensor, 9 of the connection, and success. */
	cr_assert_eq(known, 36);
}

TT_TEST(fault, names_are_those_of_the_enumeration_and_no_two_the_same)
{
	cr_assert_str_eq(tdp_error_name(TIDL_ERR_NOT_FOUND), "NOT_FOUND");
	cr_assert_str_eq(tdp_error_name(TIDL_ERR_AUTOSTART), "AUTOSTART");
	cr_assert_str_eq(tdp_error_name(TIDL_OK), "OK");
	cr_assert_str_eq(tdp_error_name(-99), "UNKNOWN");
	cr_assert_str_eq(tdp_error_name(5), "UNKNOWN");
	for (int a = -300; a < 0; a++) {
		for (int b = a + 1; b < 0; b++) {
			if (!tdp_error_is_known(a) || !tdp_error_is_known(b))
				continue;
			cr_assert_str_neq(tdp_error_name(a), tdp_error_name(b));
			cr_assert_str_neq(tdp_error_text(a), tdp_error_text(b));
		}
	}
}

TT_TEST(fault, set_records_code_and_sentence)
{
	struct tdp_fault fault = {0};

	cr_assert_eq(tdp_fault_set(&fault, TIDL_ERR_QUOTA, "%d is too %s", 7, "much"),
		     TIDL_ERR_QUOTA);
	cr_assert_eq(fault.code, TIDL_ERR_QUOTA);
	cr_assert_str_eq(fault.text, "7 is too much");
	cr_assert_eq(tdp_fault_code(&fault, TIDL_ERR_EXISTS), TIDL_ERR_EXISTS);
	cr_assert_str_eq(fault.text, tdp_error_text(TIDL_ERR_EXISTS));
}

TT_TEST(fault, errno_gives_its_own_code_where_there_is_one)
{
	struct tdp_fault fault;

	cr_assert_eq(tdp_fault_errno(&fault, ENOMEM, "cannot %s", "map"), TIDL_ERR_NO_MEMORY);
	cr_assert_str_eq(fault.text, "cannot map: Cannot allocate memory");
	cr_assert_eq(tdp_fault_errno(&fault, EMFILE, "x"), TIDL_ERR_DESCRIPTORS);
	cr_assert_eq(tdp_fault_errno(&fault, EIO, "x"), TIDL_ERR_SYSTEM);
	cr_assert_eq(tdp_fault_errno(&fault, 99999, "x"), TIDL_ERR_SYSTEM);
	cr_assert_str_eq(fault.text, "x: errno 99999");
}

TT_TEST(fault, sentences_are_cut_and_made_printable)
{
	struct tdp_fault fault;
	char text[2 * TDP_FAULT_TEXT_MAX];

	/* Two bytes a character: the cut falls into the middle of one. */
	for (size_t i = 0; i < sizeof(text); i += 2) {
		text[i] = '\xc3';
		text[i + 1] = '\xa9';
	}
	text[sizeof(text) - 2] = '\0';
	(void)tdp_fault_set(&fault, TIDL_ERR_SYSTEM, "%s", text);
	cr_assert_eq(strlen(fault.text), TDP_FAULT_TEXT_MAX - 1);
	cr_assert(tdp_text_is_clean(fault.text, strlen(fault.text)));

	(void)tdp_fault_set(&fault, TIDL_ERR_SYSTEM, "%s", "a\x1b[2Jb\xff");
	cr_assert_str_eq(fault.text, "a?[2Jb?");
	(void)tdp_fault_errno(&fault, EIO, "%s", text);
	cr_assert_eq(strlen(fault.text), TDP_FAULT_TEXT_MAX - 1);
}
