/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtidl's records as plain Python values. The package makes dataclasses of them; the keys here
 * are their field names. Ages stay in milliseconds, enumerations become their stable words.
 */
#include "client/python/src/_core/core.h"

#include <string.h>

PyObject *tpy_result_text(const char *text)
{
	if (!text)
		return Py_NewRef(Py_None);
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *tpy_result_integers(uint32_t count, const int64_t *values)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)count);
	for (uint32_t i = 0; tuple && i < count; i++) {
		PyObject *item = PyLong_FromLongLong(values[i]);
		if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)i, item))
			Py_CLEAR(tuple);
	}
	return tuple;
}

PyObject *tpy_result_publication(const struct tidl_publication *publication)
{
	return Py_BuildValue("{s:K,s:K,s:K,s:N,s:N,s:N,s:N,s:N,s:N,s:n,s:n,s:N,s:K,s:K}",
			     "generation", (unsigned long long)publication->generation,
			     "tensor_bytes", (unsigned long long)publication->tensor_bytes,
			     "exposed_bytes", (unsigned long long)publication->exposed_bytes,
			     "path", tpy_result_text(tidl_path_name(publication->path)), "reason",
			     publication->reason == TIDL_COPY_REASON_NONE
				     ? Py_NewRef(Py_None)
				     : tpy_result_text(tidl_copy_reason_name(publication->reason)),
			     "copied", PyBool_FromLong(publication->copied), "retention",
			     tpy_result_text(tidl_retention_name(publication->retention)),
			     "survives_restart", PyBool_FromLong(publication->survives_restart),
			     "aliases_previous", PyBool_FromLong(publication->aliases_previous),
			     "tensor_count", (Py_ssize_t)publication->tensor_count, "copied_count",
			     (Py_ssize_t)publication->copied_count, "access",
			     tpy_result_text(tidl_access_name(publication->access)), "moved_bytes",
			     (unsigned long long)publication->moved_bytes, "neighbour_bytes",
			     (unsigned long long)publication->neighbour_bytes);
}

static PyObject *result_list_entry(const struct tidl_list_entry *entry)
{
	return Py_BuildValue(
		"{s:k,s:N,s:K,s:N,s:N,s:k,s:k,s:N,s:N,s:N,s:K,s:K,s:k,s:K,s:L}", "owner",
		(unsigned long)entry->owner_uid, "name", tpy_result_text(entry->name), "generation",
		(unsigned long long)entry->generation, "access",
		tpy_result_text(tidl_access_name(entry->access)), "retention",
		tpy_result_text(tidl_retention_name(entry->retention)), "mode",
		(unsigned long)entry->mode, "tensor_count", (unsigned long)entry->tensor_count,
		"bundle", PyBool_FromLong(entry->is_bundle), "dtype",
		entry->tensor_count ? tpy_dtype_to_python(entry->dtype) : Py_NewRef(Py_None),
		"shape", tpy_result_integers(entry->ndim, entry->shape), "tensor_bytes",
		(unsigned long long)entry->tensor_bytes, "segment_bytes",
		(unsigned long long)entry->segment_bytes, "holder_count",
		(unsigned long)entry->holder_count, "age_ms", (unsigned long long)entry->age_ms,
		"publisher_pid", (long long)entry->publisher_pid);
}

/* Appends and takes over `item`; gives back the list, or NULL with everything freed. */
static PyObject *list_push(PyObject *list, PyObject *item)
{
	if (!item || PyList_Append(list, item)) {
		Py_XDECREF(item);
		Py_DECREF(list);
		return NULL;
	}
	Py_DECREF(item);
	return list;
}

PyObject *tpy_result_listing(const struct tidl_listing *listing)
{
	PyObject *list = PyList_New(0);
	size_t count = tidl_listing_count(listing);
	for (size_t i = 0; list && i < count; i++)
		list = list_push(list, result_list_entry(tidl_listing_entry(listing, i)));
	return list;
}

static PyObject *result_process(const struct tidl_process *process)
{
	return Py_BuildValue("{s:k,s:k,s:L,s:N,s:N,s:N,s:N}", "uid", (unsigned long)process->uid,
			     "gid", (unsigned long)process->gid, "pid", (long long)process->pid,
			     "name", tpy_result_text(process->name), "command",
			     tpy_result_text(process->command), "cgroup",
			     tpy_result_text(process->cgroup), "connected",
			     PyBool_FromLong(process->is_connected));
}

static const char *holder_kind_name(enum tidl_holder_kind kind)
{
	switch (kind) {
	case TIDL_HOLDER_LEASE:
		return "lease";
	case TIDL_HOLDER_ALLOCATION:
		return "allocation";
	case TIDL_HOLDER_PIN:
		return "pin";
	}
	return "unknown";
}

static PyObject *result_holder(const struct tidl_holder *holder)
{
	long long left_ms = holder->kind == TIDL_HOLDER_PIN ? (long long)holder->left_ms : -1;

	return Py_BuildValue("{s:s,s:N,s:K,s:L,s:N}", "kind", holder_kind_name(holder->kind),
			     "access", tpy_result_text(tidl_attach_name(holder->attach)), "age_ms",
			     (unsigned long long)holder->age_ms, "left_ms", left_ms, "process",
			     result_process(&holder->process));
}

static PyObject *result_segment(const struct tidl_segment_info *segment)
{
	return Py_BuildValue(
		"{s:K,s:K,s:K,s:K,s:k,s:K,s:K,s:K,s:N}", "id", (unsigned long long)segment->id,
		"size_bytes", (unsigned long long)segment->size_bytes, "data_offset_bytes",
		(unsigned long long)segment->data_offset_bytes, "data_size_bytes",
		(unsigned long long)segment->data_size_bytes, "seals",
		(unsigned long)segment->seals, "inode", (unsigned long long)segment->inode,
		"huge_bytes", (unsigned long long)segment->huge_bytes, "step",
		(unsigned long long)segment->step, "updating",
		PyBool_FromLong(segment->is_updating));
}

static PyObject *result_tensor(const struct tidl_tensor_info *tensor)
{
	return Py_BuildValue("{s:N,s:L,s:K,s:N,s:N,s:N,s:K}", "key", tpy_result_text(tensor->key),
			     "segment_index", (long long)tensor->segment_index, "byte_offset",
			     (unsigned long long)tensor->byte_offset, "dtype",
			     tpy_dtype_to_python(tensor->dtype), "shape",
			     tpy_result_integers(tensor->ndim, tensor->shape), "strides",
			     tpy_result_integers(tensor->ndim, tensor->strides), "nbytes",
			     (unsigned long long)tensor->nbytes);
}

static PyObject *result_head(const struct tidl_inspect_info *info)
{
	return Py_BuildValue(
		"{s:k,s:N,s:K,s:N,s:N,s:N,s:k,s:k,s:K,s:L,s:K,s:N,s:N,s:N,s:N,s:N,s:N}", "owner",
		(unsigned long)info->owner_uid, "name", tpy_result_text(info->name), "generation",
		(unsigned long long)info->generation, "access",
		tpy_result_text(tidl_access_name(info->access)), "retention",
		tpy_result_text(tidl_retention_name(info->retention)), "path",
		tpy_result_text(tidl_path_name(info->path)), "mode", (unsigned long)info->mode,
		"group", (unsigned long)info->group, "age_ms", (unsigned long long)info->age_ms,
		"left_ms", (long long)info->left_ms, "exposed_bytes",
		(unsigned long long)info->exposed_bytes, "bundle", PyBool_FromLong(info->is_bundle),
		"survives_restart", PyBool_FromLong(info->survives_restart), "write_protected",
		PyBool_FromLong(info->is_write_protected), "same_uid_write_protected",
		PyBool_FromLong(info->is_same_uid_write_protected), "metadata",
		tpy_result_text(info->metadata), "publisher", result_process(&info->publisher));
}

/* Puts a list into the dict under `key` and takes it over. */
static int dict_put(PyObject *dict, const char *key, PyObject *list)
{
	int result = list ? PyDict_SetItemString(dict, key, list) : -1;
	Py_XDECREF(list);
	return result;
}

static PyObject *result_segments(const struct tidl_inspection *inspection, size_t count)
{
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && i < count; i++)
		list = list_push(list, result_segment(tidl_inspection_segment(inspection, i)));
	return list;
}

static PyObject *result_tensors(const struct tidl_inspection *inspection, size_t count)
{
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && i < count; i++)
		list = list_push(list, result_tensor(tidl_inspection_tensor(inspection, i)));
	return list;
}

static PyObject *result_holders(const struct tidl_inspection *inspection, size_t count)
{
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && i < count; i++)
		list = list_push(list, result_holder(tidl_inspection_holder(inspection, i)));
	return list;
}

static PyObject *result_generations(size_t count, const uint64_t *generations)
{
	PyObject *list = PyList_New(0);
	for (size_t i = 0; list && i < count; i++)
		list = list_push(list, PyLong_FromUnsignedLongLong(generations[i]));
	return list;
}

PyObject *tpy_result_inspection(const struct tidl_inspection *inspection)
{
	const struct tidl_inspect_info *info = tidl_inspection_info(inspection);
	PyObject *fields = result_head(info);

	if (!fields)
		return NULL;
	if (dict_put(fields, "segments", result_segments(inspection, info->segment_count)) ||
	    dict_put(fields, "tensors", result_tensors(inspection, info->tensor_count)) ||
	    dict_put(fields, "holders", result_holders(inspection, info->holder_count)) ||
	    dict_put(fields, "kept", result_generations(info->kept_count, info->kept_generations)))
		Py_CLEAR(fields);
	return fields;
}

PyObject *tpy_result_broker(const struct tidl_broker_info *info)
{
	return Py_BuildValue(
		"{s:N,s:N,s:y#,s:K,s:k,s:k,s:N}", "address", tpy_result_text(info->address),
		"version", tpy_result_text(info->version), "id", (const char *)info->id,
		(Py_ssize_t)sizeof(info->id), "epoch", (unsigned long long)info->epoch, "uid",
		(unsigned long)info->uid, "protocol", (unsigned long)info->protocol, "private",
		PyBool_FromLong(info->is_private));
}
