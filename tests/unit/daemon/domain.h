/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_UNIT_DAEMON_DOMAIN_H
#define TT_UNIT_DAEMON_DOMAIN_H

#include <criterion/criterion.h>
#include <stdint.h>

#include "daemon/holder.h"
#include "daemon/lease.h"
#include "daemon/publication.h"
#include "daemon/quota.h"
#include "daemon/registry.h"
#include "daemon/segment.h"

/* The domain without sockets and loop: a quota, a registry, and holders of any uid. */
struct tt_domain {
	struct tdd_quota quota;
	struct tdd_registry registry;
};

enum { TT_TOTAL_BYTES = 1 << 20, TT_UID_BYTES = 1 << 19, TT_DESCRIPTORS = 100 };

static inline void tt_domain_init(struct tt_domain *domain)
{
	tdd_quota_init(&domain->quota, TT_TOTAL_BYTES, TT_UID_BYTES, TT_DESCRIPTORS);
	tdd_registry_init(&domain->registry);
}

static inline void tt_domain_deinit(struct tt_domain *domain)
{
	tdd_registry_deinit(&domain->registry);
	for (int kind = 0; kind < TDD_QUOTA_KIND_COUNT; kind++)
		cr_assert_eq(domain->quota.broker.used[kind], 0, "kind %d is still charged", kind);
	tdd_quota_deinit(&domain->quota);
}

static inline void tt_holder_init(struct tt_domain *domain, struct tdd_holder *holder, uint32_t uid)
{
	struct tdd_account *account = tdd_quota_ref_uid(&domain->quota, uid);
	struct tdd_process *process = tdd_process_new(uid, uid, 1);
	struct tdd_subject subject;

	cr_assert(account && process);
	tdd_subject_init(&subject, uid, uid, NULL, 0, TDD_GID_NONE);
	tdd_holder_init(holder, &subject, process, account);
}

static inline void tt_holder_end(struct tt_domain *domain, struct tdd_holder *holder)
{
	tdd_holder_drop_all(holder, &domain->registry);
	tdd_holder_deinit(holder);
}

/* What ALLOCATE does. */
static inline struct tdd_segment *tt_allocate(struct tt_domain *domain, struct tdd_holder *holder,
					      uint64_t size_bytes)
{
	struct tdd_registry *registry = &domain->registry;
	struct tdd_segment *segment;
	struct tdd_hold *allocation;
	struct tdp_fault fault;

	cr_assert_eq(tdd_segment_new(&registry->segments, ++registry->last_segment_id, size_bytes,
				     holder->process, tdd_holder_uid_account(holder), &segment,
				     &fault),
		     0, "%s", fault.text);
	cr_assert_eq(tdd_allocation_new(holder, segment, ++registry->last_hold_serial, &allocation,
					&fault),
		     0, "%s", fault.text);
	return segment;
}

/* What a test may want otherwise. */
struct tt_publication {
	const char *name;
	struct tdd_segment *segment; /* NULL: no memory */
	enum tidl_retention retention;
	uint64_t ttl_ms;
	uint32_t keep;
	uint32_t mode;
};

/* What PUBLISH does, without its checks; replaces what is there. */
static inline struct tdd_publication *
tt_publish_as(struct tt_domain *domain, struct tdd_holder *holder, struct tt_publication wanted)
{
	static const int64_t shape[] = {2, 3};
	static const int64_t strides[] = {3, 1};
	struct tdp_tensor tensor = {
		.key = "",
		.segment_index = wanted.segment ? 0 : -1,
		.dtype = {2, 32, 1},
		.ndim = 2,
		.shape = shape,
		.strides = strides,
	};
	struct tdd_publication_spec spec = {
		.name = wanted.name,
		.rights = {.owner_uid = holder->subject.uid, .mode = wanted.mode},
		.access = TIDL_ACCESS_SHARED,
		.retention = wanted.retention,
		.ttl_ms = wanted.ttl_ms,
		.timeline = &domain->registry.timeline,
		.path = TIDL_PATH_ALLOCATED,
		.segment_count = wanted.segment ? 1 : 0,
		.segments = &wanted.segment,
		.tensor_count = 1,
		.tensors = &tensor,
	};
	struct tdd_publication *publication;
	struct tdd_name *entry;
	struct tdp_fault fault;

	cr_assert_eq(tdd_registry_claim(&domain->registry, holder->subject.uid, wanted.name, &entry,
					&fault),
		     0);
	cr_assert_eq(tdd_publication_new(&spec, holder, &publication, &fault), 0, "%s", fault.text);
	tdd_registry_list(&domain->registry, entry, publication, wanted.keep);
	if (wanted.retention == TIDL_RETENTION_OWNER) {
		publication->owner = holder;
		DL_APPEND2(holder->owned, publication, owner_prev, owner_next);
	}
	return publication;
}

/* A NULL segment: no memory. */
static inline struct tdd_publication *tt_publish(struct tt_domain *domain,
						 struct tdd_holder *holder, const char *name,
						 struct tdd_segment *segment)
{
	return tt_publish_as(domain, holder,
			     (struct tt_publication){.name = name,
						     .segment = segment,
						     .retention = TIDL_RETENTION_PERSIST,
						     .keep = 1,
						     .mode = 0600});
}

static inline struct tdd_hold *tt_lease(struct tt_domain *domain, struct tdd_holder *holder,
					struct tdd_publication *publication,
					enum tidl_attach attach)
{
	struct tdd_lease_spec spec = {.attach = attach,
				      .serial = ++domain->registry.last_hold_serial};
	struct tdd_hold *lease;
	struct tdp_fault fault;

	cr_assert_eq(tdd_lease_new(holder, publication, &spec, &lease, &fault), 0, "%s",
		     fault.text);
	return lease;
}

static inline uint64_t tt_used(struct tt_domain *domain, uint32_t uid, enum tdd_quota_kind kind)
{
	struct tdd_account *account = tdd_quota_ref_uid(&domain->quota, uid);
	uint64_t used = account->used[kind];

	tdd_account_unref(account);
	return used;
}

#endif
