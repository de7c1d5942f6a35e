/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TIDL_TIDL_H
#define TIDL_TIDL_H

/* The whole public interface of libtidl. */
#include <tidl/admin.h>
#include <tidl/bundle.h>
#include <tidl/client.h>
#include <tidl/error.h>
#include <tidl/export.h>
#include <tidl/inplace.h>
#include <tidl/pending.h>
#include <tidl/publish.h>
#include <tidl/step.h>
#include <tidl/tensor.h>
#include <tidl/version.h>
#include <tidl/watch.h>

#endif
