# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays in shareable memory from the beginning: its allocator for a while (NEP 49)."""

from __future__ import annotations

import sys

from tidl._arguments import shown
from tidl._client import Client
from tidl._core import NumpyAllocator
from tidl._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from tidl.adapters._common import load

#: A page: what is smaller would leave most of the one that it gets empty.
_MIN_BYTES = 4096


def numpy_allocator(client: Client, *, min_bytes: int = _MIN_BYTES) -> NumpyAllocator:
    """Lets NumPy allocate in shareable memory, in a `with` statement.

        with tidl.numpy_allocator(client) as made:
            weights = np.zeros((100, 100), dtype="float32")
        client.publish("weights", weights, copy=False)  # as it is: nothing is moved or copied

    For arrays that cannot be shared in place afterwards, since they are too small or come from the
    heap. They are ordinary arrays that own their memory; it begins on a page boundary. Whatever
    NumPy allocates data for counts: results of expressions, `np.load`, its own scratch memory. What
    it takes over from somebody else does not: `np.frombuffer`, most of what is unpickled.

    Each array has a segment of its own, as those of `client.empty()`: one round trip to the broker,
    whole pages, which are reserved at once, two descriptors of the broker, and one map of this
    process, which has some 65,000.

    NumPy keeps its allocator in the context (`contextvars`): threads that are started inside the
    block allocate as usual, tasks and `asyncio.to_thread` as the block that they come from, until
    it has ended. A generator that yields inside leaves it open for its caller. Blocks may be
    nested.

    An array may outlive the block and the client, and be freed by any thread; what was published of
    it stays for its readers. A forked child shares its pages, so make no arrays of objects or of
    `StringDType` in the block then; it gives back nothing of its parent's. `ndarray.resize` keeps
    it in shareable memory inside the block; afterwards one that has to move becomes ordinary
    memory. C code that frees an array's memory by itself, behind NumPy's back, ends the process.

    Args:
        client: where the memory comes from.
        min_bytes: smaller arrays are left to the allocator of before. 1: none is.

    Returns:
        What the `with` statement enters, once, and the report of what it did: `arrays` and `bytes`
        in shareable memory now, `total_arrays` and `total_bytes` so far (bytes in whole pages),
        `left`: how many were left to the allocator of before, because they were `"small"`,
        `"late"`, after the block, or `"interrupted"`, when the handler of a signal (Ctrl-C) had
        raised and NumPy was not back yet; `error`: why the last one that was refused was refused.

    Raises:
        MissingFrameworkError: NumPy cannot be imported.
        UnsupportedError: it is older than 1.22, or newer than what is known here.
        ClosedError: the client was closed; when the block is entered.
        ArgumentTypeError, InvalidArgumentError: wrong arguments, or it is entered twice.

    Inside the block arrays that the broker refuses (quota, broker gone, client closed) are no
    ordinary ones instead: NumPy raises `MemoryError`, whose `__cause__` is tidl's error once it has
    left the block, and `error` has it at once.
    """
    if not isinstance(client, Client):
        raise ArgumentTypeError(f"memory comes from a tidl.Client, not from {shown(client)}")
    if isinstance(min_bytes, bool) or not isinstance(min_bytes, int):
        raise ArgumentTypeError(f"min_bytes is a positive integer, not {shown(min_bytes)}")
    if not 0 < min_bytes <= sys.maxsize:
        raise InvalidArgumentError(f"min_bytes is a positive integer, not {shown(min_bytes)}")
    return client._core.numpy_allocator(_array_api(), min_bytes)


def _array_api() -> object:
    """The functions that NumPy exports for C extensions."""
    numpy = load("numpy", "NumPy")
    core = getattr(numpy, "_core", None) or getattr(numpy, "core", None)
    exported = getattr(getattr(core, "_multiarray_umath", None), "_ARRAY_API", None)
    if exported is None:
        raise UnsupportedError(
            f"NumPy {numpy.__version__} does not show its C API where others do: use client.empty()"
        )
    return exported
