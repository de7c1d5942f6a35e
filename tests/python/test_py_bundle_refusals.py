# SPDX-License-Identifier: Apache-2.0
"""What cannot be a bundle or a key of one, and that nothing is left of the attempt."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_bundles import charged

import tidl


class Unpublishable:
    pass


def itself() -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    mapping["a"] = mapping
    return mapping


@pytest.mark.parametrize(
    ("mapping", "error", "text"),
    [
        ({1: np.ones(1)}, tidl.ArgumentTypeError, "1 of the bundle"),
        ({"a": {None: np.ones(1)}}, tidl.ArgumentTypeError, "None in 'a'"),
        ({"": np.ones(1)}, tidl.InvalidArgumentError, "empty"),
        ({"a": {"": {}}}, tidl.InvalidArgumentError, "empty"),
        ({"\ud800": np.ones(1)}, tidl.InvalidArgumentError, "UTF-8"),
        ({"a\nb": np.ones(1)}, tidl.InvalidArgumentError, "control"),
        ({"a\0b": np.ones(1)}, tidl.InvalidArgumentError, "control"),
        ({"k" * 256: np.ones(1)}, tidl.InvalidArgumentError, "255"),
        ({"é" * 128: np.ones(1)}, tidl.InvalidArgumentError, "255"),
        (itself(), tidl.InvalidArgumentError, "in itself"),
        ({"a": {"b": 3}}, tidl.InvalidArgumentError, "'a/b': "),
        ({"a": {"b": None}}, tidl.InvalidArgumentError, "'a/b': "),
        ({"a": [np.ones(1)]}, tidl.InvalidArgumentError, "'a': "),
        ({"a": Unpublishable()}, tidl.InvalidArgumentError, "'a': "),
        ({"a": np.array(["text"])}, tidl.DtypeError, "'a': "),
        ({"a": np.ones((1,) * 0), "b": np.array([None])}, tidl.DtypeError, "'b': "),
    ],
)
def test_refused(
    client: tidl.Client, name: str, mapping: dict[Any, Any], error: type[tidl.Error], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        client.publish(name, mapping)
    with pytest.raises(tidl.NotFoundError):
        client.inspect(name)


def test_one_bad_member_among_thousands(client: tidl.Client, name: str) -> None:
    mapping: dict[str, Any] = {f"t{i}": np.ones(4) for i in range(3000)}
    mapping["t1234"] = object()
    before = charged(client)
    with pytest.raises(tidl.InvalidArgumentError, match=r"^'t1234': "):
        client.publish(name, mapping)
    mapping["t1234"] = unreadable()
    with pytest.raises(tidl.LayoutError, match=r"^'t1234': the tensor's memory cannot be read"):
        client.publish(name, mapping)
    with pytest.raises(tidl.NotFoundError):
        client.get(name)
    assert charged(client) == before
    mapping["t1234"] = np.zeros(4)
    assert client.publish(name, mapping).tensor_count == 3000


def unreadable() -> Any:
    """An array over memory that is not there."""
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    address = mmap(None, ctypes.c_size_t(4096), 0, 0x22, -1, ctypes.c_long(0))
    return np.ctypeslib.as_array((ctypes.c_double * 4).from_address(address))


def test_the_producers_tensors_are_let_go(client: tidl.Client, name: str) -> None:
    array = np.ones(4)
    watched = weakref.ref(array)
    client.publish(name, {"a": array, "b": {"c": array}})
    with pytest.raises(tidl.InvalidArgumentError):
        client.publish(f"{name}/2", {"a": array, "b": object()})
    del array
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("keys", ["text", 5, [], ["a", 1], [""], ["a\0"], ["\ud800"]])
def test_refused_keys(client: tidl.Client, name: str, keys: Any) -> None:
    client.publish(name, {"a": np.ones(1)})
    with pytest.raises(tidl.InvalidArgumentError):
        client.get(name, keys=keys)


def test_keys_of_a_single_tensor(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(1))
    with pytest.raises(tidl.InvalidArgumentError):
        client.get(name, keys=["a"])


def test_too_many_tensors(client: tidl.Client, name: str) -> None:
    shared = client.empty(1)
    with pytest.raises(tidl.LimitError, match="16384"):
        client.publish(name, {str(i): shared for i in range(16385)})
    assert client.publish(name, {str(i): shared for i in range(16384)}).tensor_count == 16384
    assert len(client.get(name).flat) == 16384


def test_keys_that_are_too_long_together(client: tidl.Client, name: str) -> None:
    shared = client.empty(1)
    with pytest.raises(tidl.LimitError, match="keys and shapes"):
        client.publish(name, {f"{i:0250}": shared for i in range(16384)})
    assert client.publish(name, {f"{i:090}": shared for i in range(16384)}).tensor_count == 16384
    assert client.get(name, keys=[f"{77:090}"]).segment_count == 1


def test_quota_reached_half_way(own_runtime: Path) -> None:
    """What was allocated for the copy is given back, and nothing is published."""
    with tidl.connect() as client:
        page = os.sysconf("SC_PAGE_SIZE")
        small = {f"t{i}": np.ones(8) for i in range(100)}
        client.publish("small", small)
        huge = np.lib.stride_tricks.as_strided(np.ones(1), (1 << 37,), (0,))
        with pytest.raises((tidl.QuotaError, tidl.LimitError, tidl.NoMemoryError)):
            client.publish("huge", {**small, "huge": huge})
        assert [entry.name for entry in client.list()] == ["small"]
        (entry,) = client.list()
        assert entry.segment_bytes < 100 * page
        client.publish("small", small, replace=True)
