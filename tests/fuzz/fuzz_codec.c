/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a packet. What unpacks can be packed again, and then stays as it is. */
#include <string.h>

#include "proto/base/arena.h"
#include "proto/names.h"
#include "proto/wire/message.h"
#include "tests/fuzz/fuzz.h"

static unsigned char first[TDP_PACKET_MAX_BYTES], second[TDP_PACKET_MAX_BYTES];

static void repack(const struct tdp_message *message)
{
	struct tdp_message again;
	struct tdp_fault fault;
	tdp_auto_arena arena;
	size_t first_size, second_size;
	int result = tdp_message_pack(message, first, sizeof(first), &first_size, &fault);

	if (result != 0) {
		TT_FUZZ_EXPECT(result == TIDL_ERR_LIMIT || result == TIDL_ERR_NO_MEMORY);
		return;
	}
	tdp_arena_init(&arena, (size_t)2 * TDP_UNPACK_MAX_BYTES);
	TT_FUZZ_EXPECT(tdp_message_unpack(&arena, first, first_size, &again, &fault) == 0);
	TT_FUZZ_EXPECT(tdp_message_pack(&again, second, sizeof(second), &second_size, &fault) == 0);
	TT_FUZZ_EXPECT(first_size == second_size);
	TT_FUZZ_EXPECT(memcmp(first, second, first_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tdp_message message;
	struct tdp_fault fault = {0};
	tdp_auto_arena arena;
	int result;

	tdp_arena_init(&arena, TDP_UNPACK_MAX_BYTES);
	result = tdp_message_unpack(&arena, data, size, &message, &fault);
	if (result == 0) {
		repack(&message);
		return 0;
	}
	TT_FUZZ_EXPECT(result == TIDL_ERR_PROTOCOL || result == TIDL_ERR_NO_MEMORY);
	TT_FUZZ_EXPECT(fault.code == result);
	TT_FUZZ_EXPECT(tdp_text_is_clean(fault.text, strlen(fault.text)));
	TT_FUZZ_EXPECT(message.kind == TDP_MESSAGE_NONE);
	return 0;
}
