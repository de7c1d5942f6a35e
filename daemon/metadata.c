/* SPDX-License-Identifier: Apache-2.0 */
/* What publishers say of their tensors: checked to be JSON that every reader can parse, and never
 * looked at again. */
#include "daemon/metadata.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "proto/wire/limits.h"

/* How deep objects and arrays lie in each other; brackets in texts do not count. */
static unsigned json_depth(const char *json)
{
	unsigned depth = 0, deepest = 0;
	bool is_text = false;

	for (; *json != '\0'; json++) {
		if (is_text && *json == '\\' && json[1] != '\0')
			json++;
		else if (*json == '"')
			is_text = !is_text;
		else if (!is_text && (*json == '[' || *json == '{'))
			deepest = ++depth > deepest ? depth : deepest;
		else if (!is_text && (*json == ']' || *json == '}') && depth > 0)
			depth--;
	}
	return deepest;
}

int tdd_metadata_check(const char *metadata, struct tdp_fault *fault)
{
	json_error_t error;
	json_t *json;
	bool is_object;

	if (!metadata)
		return 0;
	if (strlen(metadata) > TDP_METADATA_MAX_BYTES)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata has %zu bytes and may have %d: publish large values "
				     "as tensors",
				     strlen(metadata), TDP_METADATA_MAX_BYTES);
	if (json_depth(metadata) > TDP_METADATA_MAX_DEPTH)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is more than %d levels deep: flatten it",
				     TDP_METADATA_MAX_DEPTH);
	json = json_loads(metadata, JSON_DECODE_INT_AS_REAL, &error);
	if (!json)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is not JSON: %s at byte %d", error.text,
				     error.position);
	is_object = json_is_object(json);
	json_decref(json);
	if (!is_object)
		return tdp_fault_set(fault, TIDL_ERR_METADATA,
				     "metadata is JSON, but no object: write {\"key\": value}");
	return 0;
}
