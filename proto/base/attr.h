/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDP_BASE_ATTR_H
#define TDP_BASE_ATTR_H

#include <stddef.h>

#define TDP_CLEANUP(function) __attribute__((cleanup(function)))
#define TDP_MUST_CHECK	      __attribute__((warn_unused_result))

#define TDP_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define TDP_CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
