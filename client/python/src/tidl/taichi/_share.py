# SPDX-License-Identifier: Apache-2.0
"""Taichi's own memory, shared where it lies.

Each tree of SNodes and each ndarray is a private mapping of its own, whole pages that nothing else
lies in and whose address Taichi never changes. So their pages can be exchanged under it.
"""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tidl._errors import AccessError, ArgumentTypeError, InvalidArgumentError
from tidl.taichi import _export, _family, _kernels, _snodes

if TYPE_CHECKING:
    from tidl._client import Client
    from tidl._records import Publication

PAGE_BYTES = mmap.PAGESIZE


def share(
    obj: Any,
    name: str,
    *,
    client: Client,
    access: Literal["shared", "live"] = "shared",
    mode: int = 0o600,
    group: int | str | None = None,
    expose: bool = False,
    replace: bool = False,
    retain: Literal["persist", "owner"] | float | None = None,
    keep: int = 1,
    metadata: Mapping[str, object] | None = None,
    nobody_writes: bool = False,
) -> Publication:
    """Publishes a field or an ndarray where it lies: its own memory becomes shared memory.

        x = ti.field(ti.f32, shape=(8, 4))
        tidl.taichi.share(x, "x", client=client)

    From then on all kernels, those that were compiled before included, and whoever gets the name
    with access="write" write to one memory. Kernels may run meanwhile: none of their writes is
    lost. The bytes are moved once; sharing again, also another field of the same tree, moves
    nothing.

    It ends with `client.unshare(name)`, which gives Taichi private memory back. When Taichi frees
    the memory (`tree.destroy()`, `ti.reset()`, another `ti.init()`, the end of an ndarray), others
    keep what there was. For arrays that outlive that, in this process too, use
    `client.get(name, access="write")`.

    A tree is shared as a whole. Fields made by `ti.field(shape=...)` before the first kernel lie in
    one tree, so readers see all of them: `neighbour_bytes` says how much that is. A field in a
    `ti.FieldsBuilder()` of its own has no neighbours.

    Args:
        obj: as for `to_dlpack()`.
        name: as for `client.publish()`.
        client: whose connection publishes it.
        mode: as for `client.publish()`, like `group`, `replace`, `retain`, `keep` and `metadata`.
        group: see there.
        replace: see there.
        retain: see there.
        keep: see there.
        metadata: see there.
        access: "shared", or "live": only this process writes.
        expose: with a `mode` for group or others: let them see neighbours, too.
        nobody_writes: no kernel runs, and nothing else writes to the tree or the ndarray, during
            the call, and while it becomes private again; needed only where the system cannot stop
            such writers (`reason` is "guard": no userfaultfd).

    Returns:
        What became of it: `path` is "in-place", and `moved_bytes` 0 if it was so before.

    Raises:
        CopyNeededError: the memory cannot be moved; `reason` says why.
        AccessError: neighbours would be seen by group or others; or access="immutable", as Taichi
            writes without asking.
        Error: as `to_dlpack()` and `client.publish()`.
    """
    if _family.family_of(obj) is None:
        raise ArgumentTypeError(
            f"{type(obj).__name__} is no ndarray and no field of Taichi; share others by "
            "client.publish(copy=False)"
        )
    if access not in ("shared", "live"):
        raise AccessError(
            f"Taichi writes to its memory without asking, so it cannot become {access!r}: use "
            '"live", or publish a copy'
        )
    memory = memory_of(obj)
    neighbour_bytes = 0 if memory is None else memory.neighbour_bytes
    if mode & 0o066 and neighbour_bytes and not expose:
        raise AccessError(
            f"{neighbour_bytes} bytes of other fields lie in the same tree, and group or "
            "others would see them: make it in a FieldsBuilder of its own, or pass expose=True"
        )
    publication = client.publish(
        name,
        obj,
        access=access,
        copy=False,
        retain=retain,
        mode=mode,
        group=group,
        replace=replace,
        keep=keep,
        expose=True,
        metadata=metadata,
        nobody_writes=nobody_writes,
    )
    return dataclasses.replace(publication, neighbour_bytes=neighbour_bytes)


@dataclasses.dataclass(frozen=True)
class Memory:
    """The pages that a field or an ndarray lies in."""

    address: int
    size_bytes: int
    #: of them, what belongs to others
    neighbour_bytes: int


def memory_of(obj: Any) -> Memory | None:
    """The whole memory of the tree or the ndarray, rounded to pages; None if it is not Taichi's.

    Raises:
        Error: as `to_dlpack()`.
    """
    export = _export.to_dlpack(obj)
    if export.taichi_owner is None:
        return None
    obj = getattr(obj, "_impl", obj)
    family = _family.family_of(obj)
    assert family is not None
    interface = export.__array_interface__
    address = interface["data"][0]
    own_bytes = export._array.nbytes
    if hasattr(obj, "arr"):
        return Memory(address, _pages(own_bytes), 0)
    place = _snodes.layout_of(obj)
    base = _kernels.address_of(family, obj) - place.offset_bytes
    if base % PAGE_BYTES:
        raise InvalidArgumentError(f"{family} lays its trees out otherwise than is known here")
    root_bytes = _snodes.root_bytes_of(obj)
    return Memory(base, _pages(root_bytes), root_bytes - own_bytes)


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
