# SPDX-License-Identifier: Apache-2.0
"""Checks of what callers pass, before it goes to the extension."""

from __future__ import annotations

import grp
import json
import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import SupportsIndex

from tidl._errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    LayoutError,
    MetadataError,
    NameInvalidError,
    UnsupportedError,
)

#: Values of enum tidl_attach.
ATTACH = {"read": 1, "write": 2, "copy_on_write": 3}

#: Value of enum tidl_access that is built; the others are known words.
ACCESS = {"shared": 1, "live": 2, "immutable": 3}

#: Values of enum tidl_retention.
RETENTION = {None: 0, "persist": 1, "owner": 2}
RETENTION_SECONDS = 3

#: Values of enum tidl_copy.
COPY = {None: 0, True: 1, False: 2}

_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1
_FOREVER_MS = -1


def shown(value: object) -> str:
    """A value for a message, whatever its size and however broken its repr()."""
    try:
        text = repr(value)
    except Exception:  # a huge integer, for one
        return f"<{type(value).__name__}>"
    return text if len(text) <= 200 else f"{text[:200]}..."


def switch(value: object, what: str) -> bool:
    """A yes or no."""
    try:
        return bool(value)
    except (TypeError, ValueError, RuntimeError) as error:  # arrays with several elements
        raise ArgumentTypeError(f"{what} is True or False, not {shown(value)}") from error


def name_text(name: object) -> str:
    """A name or pattern that can travel: text, without NUL, valid in UTF-8."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"a name is a str, not {type(name).__name__}")
    if "\0" in name:
        raise NameInvalidError("a name has no NUL characters")
    if not is_utf8(name):
        raise NameInvalidError("a name must be valid UTF-8; it has a lone surrogate")
    return name


def address_text(address: str | os.PathLike[str] | None) -> str | None:
    """The path of a socket, or None to search for one."""
    if address is None:
        return None
    try:
        path = os.fspath(address)
    except TypeError as error:
        raise ArgumentTypeError(
            f"an address is the path of a socket, not {shown(address)}"
        ) from error
    if not isinstance(path, str):
        raise ArgumentTypeError(f"an address is a str or a Path, not {shown(address)}")
    if "\0" in path or not is_utf8(path):
        raise InvalidArgumentError(f"{shown(path)} is no path that a socket can have")
    return path


def is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def timeout_ms(timeout: float | None) -> int:
    """Seconds to libtidl's milliseconds, rounded up so that no wait ends early; -1 for ever."""
    if timeout is None:
        return _FOREVER_MS
    try:
        if isinstance(timeout, str | bytes | bytearray):
            raise TypeError
        seconds = float(timeout)
    except OverflowError as error:
        raise InvalidArgumentError(
            f"a timeout of {shown(timeout)} seconds is out of range; None waits for ever"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentTypeError(
            "timeout is a number of seconds, or None to wait for ever"
        ) from error
    if math.isnan(seconds) or seconds < 0:
        raise InvalidArgumentError(
            f"timeout must be 0 or more seconds or None, not {shown(timeout)}"
        )
    return math.ceil(seconds * 1000) if seconds < _INT64_MAX / 1e6 else _FOREVER_MS


def timeout_seconds(timeout: float | None) -> float | None:
    """Seconds for an event loop, checked as for `timeout_ms()`; None for ever."""
    milliseconds = timeout_ms(timeout)
    return None if milliseconds < 0 else milliseconds / 1000


def whole_number(value: object, what: str, least: int, most: int) -> int:
    """An integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ArgumentTypeError(f"{what} is an integer, not {shown(value)}")
    number = operator.index(value)
    if not least <= number <= most:
        raise InvalidArgumentError(f"{what} is a number from {least} to {most}, not {shown(value)}")
    return number


def shape_tuple(shape: object) -> tuple[int, ...]:
    """A shape as a tuple of 64-bit integers; a bare integer is one dimension."""
    try:
        if isinstance(shape, SupportsIndex):
            extents: tuple[int, ...] = (operator.index(shape),)
        elif isinstance(shape, Iterable) and not isinstance(shape, str | bytes):
            extents = tuple(operator.index(extent) for extent in shape)
        else:
            raise TypeError
    except TypeError as error:
        raise ArgumentTypeError(
            f"a shape is an integer or a sequence of them: {shown(shape)}"
        ) from error
    if any(not 0 <= extent <= _INT64_MAX for extent in extents):
        raise LayoutError(
            f"extents of a shape are 0 or more and fit into 64 bits: {shown(extents)}"
        )
    return extents


def metadata_text(metadata: Mapping[str, object] | None) -> str | None:
    """Metadata as JSON text; libtidl checks its length."""
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise MetadataError(f"metadata is a dict, not {type(metadata).__name__}")
    try:
        _require_text_keys(metadata)
        text = json.dumps(
            dict(metadata), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(f"metadata must be made of what JSON has: {error}") from error
    return text


def _require_text_keys(value: object) -> None:
    """Python's json writes the keys 1, None and True as texts without a word."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no string")
            _require_text_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_text_keys(inner)


def access_value(access: object) -> int:
    """The access under which memory is published."""
    if not isinstance(access, str) or access not in ACCESS:
        raise InvalidArgumentError(
            f'access is "shared", "live" or "immutable", not {shown(access)}'
        )
    return ACCESS[access]


def attach_value(access: object) -> int:
    """The access with which a tensor is attached."""
    if not isinstance(access, str) or access not in ATTACH:
        raise InvalidArgumentError(
            f'access is "read", "write" or "copy_on_write", not {shown(access)}'
        )
    return ATTACH[access]


def retention_values(retain: object) -> tuple[int, int]:
    """How long a publication lives: libtidl's word for it, and milliseconds if it is seconds."""
    if isinstance(retain, int | float) and not isinstance(retain, bool):
        # The comparison is false for NaN, too.
        if not 0 < retain < _INT64_MAX / 1e6:
            raise InvalidArgumentError(
                f'a life time is more than 0 seconds, not {shown(retain)}; "persist" is for ever'
            )
        return RETENTION_SECONDS, math.ceil(retain * 1000)
    if retain is not None and (not isinstance(retain, str) or retain not in RETENTION):
        raise InvalidArgumentError(
            f'retain is None, "persist", "owner" or seconds, not {shown(retain)}'
        )
    return RETENTION[retain], 0


def copy_value(copy: object) -> int:
    """Whether publishing may, must or must not copy."""
    if copy is not None and not isinstance(copy, bool):
        raise ArgumentTypeError(f"copy is True, False or None, not {shown(copy)}")
    return COPY[copy]


def mode_bits(mode: object) -> int:
    """Permission bits; libtidl refuses those outside 0o666."""
    if isinstance(mode, bool) or not isinstance(mode, int):
        raise ArgumentTypeError(f"mode is an integer such as 0o600, not {shown(mode)}")
    if mode <= 0 or mode & ~0o666:
        raise InvalidArgumentError(
            f"mode {mode:#o} is empty or has bits outside 0o666: it grants reading and writing"
        )
    return mode


def group_id(group: str | int | None) -> int | None:
    """A group id; None means the caller's own."""
    if group is None:
        return None
    if isinstance(group, str):
        try:
            return grp.getgrnam(group).gr_gid
        except (KeyError, ValueError) as error:  # ValueError: NUL or a lone surrogate in it
            raise InvalidArgumentError(
                f"there is no group {shown(group)} on this machine"
            ) from error
    if isinstance(group, bool) or not isinstance(group, int) or not 0 <= group < 2**32 - 1:
        raise InvalidArgumentError(f"group is a group's name or id, not {shown(group)}")
    return group


def bundle_keys(keys: object) -> tuple[str, ...] | None:
    """Paths of tensors and mappings in a bundle; None: all of it."""
    if keys is None:
        return None
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise ArgumentTypeError(f"keys is a list of paths, not {shown(keys)}")
    paths = tuple(keys)
    for path in paths:
        if not isinstance(path, str):
            raise ArgumentTypeError(f"keys are strings, and {shown(path)} is none")
        if not path or "\0" in path or not is_utf8(path):
            raise InvalidArgumentError(f"{shown(path)} is not a key that a bundle can have")
    if not paths:
        raise InvalidArgumentError("keys is empty: leave it out for the whole bundle")
    return paths


def generation_number(generation: int | None) -> int:
    """A generation to ask for; 0 means the current one."""
    if generation is None:
        return 0
    if isinstance(generation, bool) or not isinstance(generation, int):
        raise ArgumentTypeError(f"generation is an integer or None, not {shown(generation)}")
    if not 0 < generation <= _UINT64_MAX:
        raise InvalidArgumentError(f"no generation has the number {shown(generation)}")
    return generation


def newer_than_number(newer_than: int | None) -> int:
    """The generation above which one is wanted; 0 means any."""
    if newer_than is None:
        return 0
    if isinstance(newer_than, bool) or not isinstance(newer_than, int):
        raise ArgumentTypeError(f"newer_than is an integer or None, not {shown(newer_than)}")
    if not 0 <= newer_than <= _UINT64_MAX:
        raise InvalidArgumentError(f"no generation has the number {shown(newer_than)}")
    return newer_than


def require_host(device: object) -> None:
    """Refuses devices other than the host's memory."""
    if device is not None and str(device) != "cpu":
        raise UnsupportedError(f'device {shown(device)} is not built yet; "cpu" is')


def keep_count(keep: object) -> int:
    """How many generations to keep; libtidl checks the limit."""
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise InvalidArgumentError(f"keep is a number of generations from 1 on, not {shown(keep)}")
    return min(keep, 2**32 - 1)


def require_no_stream(stream: object) -> None:
    """Refuses streams: host memory has none."""
    if stream is not None:
        raise UnsupportedError("streams belong to device memory, which is not built yet")
