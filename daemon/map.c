/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash function of every map in the broker: SipHash-1-3 (J.-P. Aumasson, D. J. Bernstein) with
 * a seed of this process. The seed is set once at start and is constant from then on; without it
 * (unit tests) the function is the same, but predictable.
 */
#include "daemon/map.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

struct sip {
	uint64_t a, b, c, d;
};

static uint64_t seed[2];

int tdd_map_seed(void)
{
	if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		return -errno;
	return 0;
}

uint64_t tdd_map_secret(void)
{
	return seed[0] ^ seed[1];
}

static uint64_t rotate_left(uint64_t value, int bits)
{
	return (value << bits) | (value >> (64 - bits));
}

static void sip_round(struct sip *state)
{
	state->a += state->b;
	state->b = rotate_left(state->b, 13) ^ state->a;
	state->a = rotate_left(state->a, 32);
	state->c += state->d;
	state->d = rotate_left(state->d, 16) ^ state->c;
	state->a += state->d;
	state->d = rotate_left(state->d, 21) ^ state->a;
	state->c += state->b;
	state->b = rotate_left(state->b, 17) ^ state->c;
	state->c = rotate_left(state->c, 32);
}

static void sip_absorb(struct sip *state, uint64_t word)
{
	state->d ^= word;
	sip_round(state);
	state->a ^= word;
}

uint32_t tdd_map_hash(const void *key, size_t length)
{
	const unsigned char *bytes = key;
	struct sip state = {
		.a = seed[0] ^ 0x736f6d6570736575u,
		.b = seed[1] ^ 0x646f72616e646f6du,
		.c = seed[0] ^ 0x6c7967656e657261u,
		.d = seed[1] ^ 0x7465646279746573u,
	};
	uint64_t last = (uint64_t)length << 56;
	uint64_t word;

	for (; length >= sizeof(word); length -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		sip_absorb(&state, word);
	}
	word = 0;
	if (length > 0)
		memcpy(&word, bytes, length);
	sip_absorb(&state, last | word);
	state.c ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(&state);
	word = state.a ^ state.b ^ state.c ^ state.d;
	return (uint32_t)(word ^ (word >> 32));
}
