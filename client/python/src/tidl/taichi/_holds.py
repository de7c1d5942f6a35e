# SPDX-License-Identifier: Apache-2.0
"""What keeps memory alive as long as Taichi has it: until its tree, or all of Taichi, ends."""

from __future__ import annotations

import weakref
from typing import Any

from tidl.taichi import _family

#: by package: the program (what `init()` starts and `reset()` ends) and what it has, by tree
_held: dict[str, tuple[weakref.ref[Any], dict[int, Any]]] = {}


def of(family: str) -> dict[int, Any]:
    """What the package's current program has, by the number of the tree.

    Raises:
        InvalidArgumentError: the package is not initialised.
    """
    program = _family.runtime_of(family).prog
    known = _held.get(family)
    if known is not None and known[0]() is program:
        return known[1]
    if known is not None:
        known[1].clear()  # of a program that was ended, though something still refers to it
    holds: dict[int, Any] = {}
    _held[family] = (weakref.ref(program), holds)
    weakref.finalize(program, holds.clear).atexit = False
    return holds
