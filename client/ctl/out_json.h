/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CTL_OUT_JSON_H
#define CTL_OUT_JSON_H

#include <jansson.h>
#include <stdint.h>

#include <tidl/tidl.h>

/*
 * Output for programs: one JSON object a run, pure ASCII (so that it is safe on a terminal too),
 * with the version of its schema. Fields are only ever added within a schema.
 */
enum { CTL_JSON_SCHEMA = 1 };

/* A new document, {"schema": 1}. All json_t results here are owned and never NULL. */
json_t *ctl_json_document(void);

/* Print @document on standard output, with a line's end, and drop it. */
void ctl_json_print(json_t *document);

/* The same on one line, for commands that print many, and at once. */
void ctl_json_print_line(json_t *document);

/* Add a member and take over its value. */
void ctl_json_set(json_t *object, const char *key, json_t *value);
void ctl_json_append(json_t *array, json_t *value);

/* Text of any bytes: what is not UTF-8 is escaped as for a terminal. NULL gives null. */
json_t *ctl_json_text(const char *text);

json_t *ctl_json_number(uint64_t number);
json_t *ctl_json_tuple(const int64_t *values, uint32_t count);

/* {"uid": 1000, "user": "alice"}; the name is null where there is none. */
json_t *ctl_json_user(uint32_t uid);
json_t *ctl_json_process(const struct tidl_process *process);

/* "0600" */
json_t *ctl_json_mode(uint32_t mode);

/* {"code": "NOT_FOUND", "message": "..."} */
json_t *ctl_json_error(const char *code, const char *message);

#endif
