/* SPDX-License-Identifier: Apache-2.0 */
/* Owners in front of names: user names become uids here, on the client's side, where the user
 * meant them. */
#include "client/lib/owner.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "proto/names.h"

enum {
	/* LOGIN_NAME_MAX of Linux. */
	USER_NAME_MAX_BYTES = 256,

	USER_BUFFER_FIRST_BYTES = 1024,
	USER_BUFFER_MAX_BYTES = 1 << 20,
};

bool tdc_user_find(const char *user, uint32_t *ret_uid)
{
	size_t size_bytes = USER_BUFFER_FIRST_BYTES;
	struct passwd entry;
	struct passwd *found = NULL;
	char *buffer = NULL;
	int error;

	do {
		char *grown = realloc(buffer, size_bytes);

		if (grown == NULL) {
			error = ENOMEM;
			break;
		}
		buffer = grown;
		error = getpwnam_r(user, &entry, buffer, size_bytes, &found);
		size_bytes *= 2;
	} while (error == ERANGE && size_bytes <= USER_BUFFER_MAX_BYTES);
	if (error == 0 && found != NULL)
		*ret_uid = found->pw_uid;
	free(buffer);
	return error == 0 && found != NULL;
}

static bool owner_is_number(const char *owner)
{
	return owner[0] != '\0' && owner[strspn(owner, "0123456789")] == '\0';
}

static int owner_resolve(const char *owner, uint32_t *ret_uid, struct tdp_fault *fault)
{
	unsigned long long number;

	if (!owner_is_number(owner)) {
		if (tdc_user_find(owner, ret_uid))
			return 0;
		return tdp_fault_set(fault, TIDL_ERR_NOT_FOUND,
				     "there is no user '%s': check the name before the ':', or "
				     "give a uid",
				     owner);
	}
	errno = 0;
	number = strtoull(owner, NULL, 10);
	/* The largest value means "no uid" to the kernel. */
	if (errno != 0 || number >= UINT32_MAX)
		return tdp_fault_set(fault, TIDL_ERR_NAME_INVALID,
				     "%s is not a uid: check the number before the ':'", owner);
	*ret_uid = (uint32_t)number;
	return 0;
}

/* Split at the first ':'. @ret_owner is "" without one. */
static int owner_split(const char *text, char ret_owner[USER_NAME_MAX_BYTES], const char **ret_path,
		       struct tdp_fault *fault)
{
	const char *colon = strchr(text, ':');
	size_t length;

	if (colon == NULL) {
		ret_owner[0] = '\0';
		*ret_path = text;
		return 0;
	}
	length = (size_t)(colon - text);
	if (length == 0 || length >= USER_NAME_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_NAME_INVALID,
				     "before the ':' there must be a user name or a uid: "
				     "correct the name");
	memcpy(ret_owner, text, length);
	ret_owner[length] = '\0';
	*ret_path = colon + 1;
	return 0;
}

int tdc_name_parse(const char *text, struct tdc_name *ret_name, struct tdp_fault *fault)
{
	struct tdc_name name = {.has_owner = false};
	char owner[USER_NAME_MAX_BYTES];
	int r = owner_split(text, owner, &name.path, fault);

	if (r == 0)
		r = tdp_name_check(name.path, fault);
	if (r == 0 && owner[0] != '\0') {
		name.has_owner = true;
		r = owner_resolve(owner, &name.owner_uid, fault);
	}
	if (r == 0)
		*ret_name = name;
	return r;
}

int tdc_pattern_parse(const char *text, struct tdc_name *ret_name, struct tdp_fault *fault)
{
	struct tdc_name name = {.has_owner = false};
	char owner[USER_NAME_MAX_BYTES];
	int r = owner_split(text, owner, &name.path, fault);

	if (r == 0)
		r = tdp_pattern_check(name.path, fault);
	if (r == 0 && strcmp(owner, "*") == 0) {
		name.any_owner = true;
	} else if (r == 0 && owner[0] != '\0') {
		name.has_owner = true;
		r = owner_resolve(owner, &name.owner_uid, fault);
	}
	if (r == 0)
		*ret_name = name;
	return r;
}
