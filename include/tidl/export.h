/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_EXPORT_H
#define TIDL_EXPORT_H

/* Everything in libtidl is hidden unless marked with TIDL_API and listed in libtidl.map. */
#if defined(__GNUC__)
#define TIDL_API __attribute__((visibility("default")))
#else
#define TIDL_API
#endif

#endif
