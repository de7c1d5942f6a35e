# SPDX-License-Identifier: Apache-2.0
"""Taichi and its forks, which share names and structure: whose object is this, and what runs it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tidl._errors import DeviceError, InvalidArgumentError, UnsupportedError

FAMILY = ("taichi", "quadrants", "gstaichi")

_CPU = ("x64", "arm64")


def family_of(obj: Any) -> str | None:
    """The name of the package that an object belongs to, None if it is none of them."""
    for base in type(obj).__mro__:
        package = base.__module__.partition(".")[0]
        if package in FAMILY and package in sys.modules:
            return package
    return None


def name_of(framework: Any) -> str:
    """The name of the package, or of the imported package, that a caller means.

    Raises:
        InvalidArgumentError: it is neither Taichi nor a fork of it.
    """
    name = getattr(framework, "__name__", framework)
    if name not in FAMILY:
        raise InvalidArgumentError(f"{framework!r} is none of {', '.join(FAMILY)}")
    return str(name)


def part(family: str, module: str) -> Any:
    """A module of the package."""
    return importlib.import_module(f"{family}.{module}")


def runtime_of(family: str) -> Any:
    """What the package's `init()` started: a new object after each `reset()` or `init()`.

    Raises:
        InvalidArgumentError: it is not initialised.
    """
    runtime = current_runtime(family)
    if runtime is None:
        raise InvalidArgumentError(f"{family} is not initialised: call {family}.init() first")
    return runtime


def current_runtime(family: str) -> Any:
    """The runtime, or None before `init()` and after `reset()`."""
    runtime = part(family, "lang.impl").get_runtime()
    try:
        return None if runtime.prog is None else runtime
    except RuntimeError:  # how the forks say it
        return None


def settle(family: str) -> Any:
    """Places the fields that wait for the first kernel, and ends what still runs.

    Returns:
        The runtime.

    Raises:
        InvalidArgumentError: the package is not initialised, or some field is not placed.
        UnsupportedError: the CUDA back end, which is not built yet.
        DeviceError: a graphics back end, whose memory DLPack has no word for.
    """
    runtime = runtime_of(family)
    _require_host(family)
    try:
        runtime.sync()
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"{family} cannot lay out its fields yet; give each a shape or place it, and finalize "
            f"each FieldsBuilder: {error}"
        ) from error
    return runtime


def _require_host(family: str) -> None:
    """Refuses back ends whose memory is not the host's."""
    arch = _arch_name(family)
    if arch in _CPU:
        return
    if arch == "cuda":
        raise UnsupportedError(
            f"memory of {family}'s CUDA back end cannot be exported by this version; use "
            f"arch={family}.cpu"
        )
    raise DeviceError(
        f"DLPack cannot describe memory of {family}'s {arch} back end: use arch={family}.cpu, or "
        "copy with to_numpy()"
    )


def _arch_name(family: str) -> str:
    name: str = part(family, "lang.impl").current_cfg().arch.name
    return name
