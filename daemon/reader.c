/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers: leases counted by holder and publication. Owned by the leases, who take and give them
 * up, and by who makes one; a reader charges nobody.
 */
#include "daemon/reader.h"

#include <stdlib.h>

#include "daemon/holder.h"
#include "daemon/publication.h"
#include "daemon/waiter.h"

static struct tdd_reader *reader_find(const struct tdd_holder *holder,
				      const struct tdd_publication *publication)
{
	struct tdd_reader *reader = NULL;

	HASH_FIND(hh, holder->readers, &publication->generation, sizeof(publication->generation),
		  reader);
	return reader;
}

static struct tdd_reader *reader_new(struct tdd_holder *holder, struct tdd_publication *publication)
{
	struct tdd_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return NULL;
	reader->holder = holder;
	reader->publication = publication;
	reader->generation = publication->generation;
	HASH_ADD(hh, holder->readers, generation, sizeof(reader->generation), reader);
	if (!reader->hh.tbl) {
		free(reader);
		return NULL;
	}
	publication->reader_count++;
	return reader;
}

struct tdd_reader *tdd_reader_take(struct tdd_holder *holder, struct tdd_publication *publication)
{
	struct tdd_reader *reader = reader_find(holder, publication);

	if (!reader)
		reader = reader_new(holder, publication);
	if (reader)
		reader->lease_count++;
	return reader;
}

struct tdd_reader *tdd_reader_give_up(struct tdd_reader *reader)
{
	if (--reader->lease_count > 0)
		return NULL;
	reader->publication->reader_count--;
	HASH_DELETE(hh, reader->holder->readers, reader);
	free(reader);
	return NULL;
}

struct tdd_reader *tdd_reader_leave(struct tdd_reader *reader)
{
	struct tdd_publication *publication = reader->publication;
	const struct tdd_holder *holder = reader->holder;

	tdd_reader_give_up(reader);
	if (publication->waiters && !tdd_holder_reads(holder, publication))
		tdd_waiters_wake_released(publication);
	tdd_publication_settle(publication);
	return NULL;
}

bool tdd_holder_reads(const struct tdd_holder *holder, const struct tdd_publication *publication)
{
	return reader_find(holder, publication) != NULL;
}

bool tdd_publication_is_released(const struct tdd_publication *publication,
				 const struct tdd_holder *holder)
{
	uint32_t own_count = tdd_holder_reads(holder, publication) ? 1 : 0;

	return !publication->pins && publication->reader_count == own_count;
}
