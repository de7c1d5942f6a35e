/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins. Owned by the publication that they keep; each ends by its deadline in the registry's
 * timeline, or with the broker.
 */
#include "daemon/pin.h"

#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/publication.h"
#include "daemon/registry.h"
#include "daemon/waiter.h"

/* As many as there are uids that pinned it. */
static struct tdd_pin *pin_find(const struct tdd_publication *publication,
				const struct tdd_account *uid_account)
{
	struct tdd_pin *pin;

	DL_FOREACH (publication->pins, pin) {
		if (pin->charge.account == uid_account)
			return pin;
	}
	return NULL;
}

static void pin_release(struct tdd_pin *pin)
{
	tdd_deadline_deinit(&pin->deadline);
	tdd_charge_deinit(&pin->charge);
	tdd_process_unref(pin->process);
	free(pin);
}

static void pin_expired(struct tdd_deadline *deadline)
{
	tdd_pin_free(TDP_CONTAINER_OF(deadline, struct tdd_pin, deadline));
}

static int pin_new(struct tdd_publication *publication, struct tdd_account *uid_account,
		   struct tdd_pin **ret_pin, struct tdp_fault *fault)
{
	struct tdd_registry *registry = publication->registry;
	struct tdd_pin *pin = calloc(1, sizeof(*pin));
	int r;

	if (!pin)
		return tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	r = tdd_charge_init(&pin->charge, uid_account, TDD_QUOTA_PINS, 1, fault);
	if (r == 0 && tdd_deadline_init(&pin->deadline, &registry->timeline, pin_expired) < 0)
		r = tdp_fault_code(fault, TIDL_ERR_NO_MEMORY);
	if (r < 0) {
		pin_release(pin);
		return r;
	}
	pin->publication = publication;
	pin->serial = ++registry->last_hold_serial;
	pin->since_ms = tdd_clock_ms();
	DL_APPEND(publication->pins, pin);
	*ret_pin = pin;
	return 0;
}

int tdd_pin_put(struct tdd_publication *publication, struct tdd_account *uid_account,
		struct tdd_process *process, uint64_t until_ms, struct tdp_fault *fault)
{
	struct tdd_pin *pin = pin_find(publication, uid_account);

	if (!pin) {
		int r = pin_new(publication, uid_account, &pin, fault);

		if (r < 0)
			return r;
	}
	if (!tdd_deadline_is_set(&pin->deadline) || pin->deadline.at_ms < until_ms)
		tdd_deadline_set(&pin->deadline, until_ms);
	if (pin->process != process) {
		tdd_process_unref(pin->process);
		pin->process = tdd_process_ref(process);
	}
	return 0;
}

struct tdd_pin *tdd_pin_free(struct tdd_pin *pin)
{
	struct tdd_publication *publication;

	if (!pin)
		return NULL;
	publication = pin->publication;
	DL_DELETE(publication->pins, pin);
	pin_release(pin);
	tdd_waiters_wake_released(publication);
	tdd_publication_settle(publication);
	return NULL;
}
