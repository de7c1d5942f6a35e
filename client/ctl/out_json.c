/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output for programs, over jansson. Building blocks only: which members a command prints is in
 * that command's own file.
 */
#include "client/ctl/out_json.h"

#include "client/ctl/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

json_t *ctl_json_document(void)
{
	json_t *document = ctl_text_checked(json_object());

	ctl_json_set(document, "schema", json_integer(CTL_JSON_SCHEMA));
	return document;
}

void ctl_json_print(json_t *document)
{
	json_dumpf(document, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	fputc('\n', stdout);
	json_decref(document);
}

void ctl_json_print_line(json_t *document)
{
	json_dumpf(document, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
	fputc('\n', stdout);
	json_decref(document);
}

void ctl_json_set(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, ctl_text_checked(value)) != 0)
		ctl_text_checked(NULL);
}

void ctl_json_append(json_t *array, json_t *value)
{
	if (json_array_append_new(array, ctl_text_checked(value)) != 0)
		ctl_text_checked(NULL);
}

json_t *ctl_json_text(const char *text)
{
	json_t *value;
	char *escaped;

	if (!text)
		return json_null();
	value = json_string(text);
	if (value)
		return value;
	escaped = ctl_text_escape(text);
	value = ctl_text_checked(json_string(escaped));
	free(escaped);
	return value;
}

json_t *ctl_json_number(uint64_t number)
{
	return ctl_text_checked(json_integer((json_int_t)number));
}

json_t *ctl_json_tuple(const int64_t *values, uint32_t count)
{
	json_t *array = ctl_text_checked(json_array());

	for (uint32_t i = 0; i < count; i++)
		ctl_json_append(array, json_integer(values[i]));
	return array;
}

json_t *ctl_json_user(uint32_t uid)
{
	char name[CTL_WORD_MAX];
	json_t *user = ctl_text_checked(json_object());

	ctl_json_set(user, "uid", json_integer(uid));
	ctl_json_set(user, "user", ctl_json_text(ctl_text_user(uid, name)));
	return user;
}

json_t *ctl_json_process(const struct tidl_process *process)
{
	json_t *object = ctl_json_user(process->uid);

	ctl_json_set(object, "gid", json_integer(process->gid));
	ctl_json_set(object, "pid", json_integer(process->pid));
	ctl_json_set(object, "name", ctl_json_text(process->name));
	ctl_json_set(object, "command", ctl_json_text(process->command));
	ctl_json_set(object, "cgroup", ctl_json_text(process->cgroup));
	ctl_json_set(object, "connected", json_boolean(process->is_connected));
	return object;
}

json_t *ctl_json_mode(uint32_t mode)
{
	char text[CTL_WORD_MAX];

	snprintf(text, sizeof(text), "%04" PRIo32, mode);
	return ctl_json_text(text);
}

json_t *ctl_json_error(const char *code, const char *message)
{
	json_t *error = ctl_text_checked(json_object());

	ctl_json_set(error, "code", ctl_json_text(code));
	ctl_json_set(error, "message", ctl_json_text(message));
	return error;
}
