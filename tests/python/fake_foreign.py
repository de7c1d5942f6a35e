# SPDX-License-Identifier: Apache-2.0
"""The producer and the consumer of foreign.c, for what neither a framework nor ctypes can show."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_dlpack as dl
import pytest


def library_path() -> Path:
    """Where the build has it. Skips the test where there is no build."""
    if "TIDL_BUILD_DIR" not in os.environ:
        pytest.skip("needs a build: set TIDL_BUILD_DIR")
    return Path(os.environ["TIDL_BUILD_DIR"]) / "tests/python/libforeign.so"


def load(path: Path) -> Any:
    """The library. Its functions are called with the GIL, and keep it while they wait."""
    library = ctypes.PyDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.tt_delete_on_thread.argtypes = [pointer, pointer, number]
    library.tt_delete_at_exit.argtypes = [pointer, pointer, number, number]
    library.tt_producer_new.argtypes = [number, pointer, ctypes.c_int64]
    library.tt_producer_new.restype = pointer
    library.tt_producer_chain.argtypes = [pointer, pointer, pointer, number]
    library.tt_producer_chain.restype = None
    library.tt_producer_free.argtypes = [pointer]
    library.tt_producer_free.restype = None
    return library


def delete_on_thread(library: Any, consumer: dl.Consumer, count: int) -> None:
    """Lets a thread that never saw Python call the deleter of a capsule that was consumed."""
    assert library.tt_delete_on_thread(consumer.pointer, consumer.managed.deleter, count) == 0


class Producer:
    """Floats 0, 1, 2, ... in a structure that nobody can touch once its deleter was called."""

    def __init__(self, library: Any, count: int, *, is_versioned: bool) -> None:
        self.library = library
        self.data = (ctypes.c_float * count)(*range(count))
        self.page: int = library.tt_producer_new(is_versioned, ctypes.addressof(self.data), count)
        assert self.page
        self._name = b"dltensor_versioned" if is_versioned else b"dltensor"
        self._deleted = library.tt_deleted_count()
        self._without_gil = library.tt_without_gil_count()

    @property
    def deleted(self) -> int:
        """Calls of the deleter since this producer was made."""
        count: int = self.library.tt_deleted_count() - self._deleted
        return count

    @property
    def without_gil(self) -> int:
        """Those of them that came without the GIL."""
        count: int = self.library.tt_without_gil_count() - self._without_gil
        return count

    def capsule(self) -> Any:
        return dl.new_capsule(self.page, self._name)

    def chain(self, consumer: dl.Consumer, count: int) -> None:
        """Lets the deleter wait for that of a consumed capsule on another thread."""
        self.library.tt_producer_chain(self.page, consumer.pointer, consumer.managed.deleter, count)


@contextmanager
def producer(library: Any, count: int, *, is_versioned: bool) -> Iterator[Producer]:
    made = Producer(library, count, is_versioned=is_versioned)
    yield made
    library.tt_producer_free(made.page)
