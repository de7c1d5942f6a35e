# SPDX-License-Identifier: Apache-2.0
"""What `tidl.torch.share_()` and `tidl.paddle.share_()` have in common.

Tensors are gathered, those whose memory overlaps are put together, one new block of shareable
memory is laid out for all of them, the bytes are copied, and then each framework points its tensors
there. Up to that last step nothing has changed, and a failure within it is undone. Knows no
framework.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidl._arguments import shown, whole_number
from tidl._errors import (
    ArgumentTypeError,
    Error,
    InvalidArgumentError,
    LayoutError,
    NotExportableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from tidl._client import Client
    from tidl._tensor import Tensor

# As members of bundles lie.
_ALIGNMENT = 256

_LARGEST_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Shared:
    """What `share_()` has done.

    Attributes:
        tensors: how many tensors lie in shareable memory now that did not before.
        bytes: of their storages, copied once.
        left: how many were left where they are: those without elements, those whose storage is not
            below the limit, and those that lie in memory of this client already.
    """

    tensors: int
    bytes: int
    left: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies.

    Attributes:
        first: address of its first element.
        begin: address of its storage.
        size: of its storage, in bytes.
        item_bytes: what the distance between two of its elements is a multiple of.
    """

    first: int
    begin: int
    size: int
    item_bytes: int


class Framework(Protocol):
    """What has to be known of a framework. What a method raises is taken for a refusal."""

    #: Its name, and what `share_()` takes, for messages.
    title: str
    takes: str

    def tensors_in(self, target: Any) -> Iterable[Any] | None:
        """The tensors of a tensor or of a module; None for anything else."""

    def place_of(self, tensor: Any) -> Place | None:
        """Where a tensor lies; None for one without memory. Refuses what cannot be moved."""

    def over(self, memory: Tensor) -> Any:
        """The framework's tensor over a block of bytes."""

    def home_of(self, tensor: Any) -> Callable[[], None]:
        """What puts a tensor back where it is now."""

    def move(self, tensor: Any, block: Any, offset: int) -> None:
        """Points a tensor to a block, `offset` bytes after its beginning."""


@dataclass(slots=True)
class _Group:
    """Tensors over one piece of memory."""

    begin: int
    end: int
    members: list[tuple[Any, Place]]
    offset: int = 0

    @property
    def size(self) -> int:
        return self.end - self.begin


def share(framework: Framework, target: Any, client: Client, below: int | None) -> Shared:
    """`share_()` of a framework."""
    if below is not None:
        below = whole_number(below, "below", 0, _LARGEST_BYTES)
    tensors = list({id(tensor): tensor for tensor in _walk(framework, target)}.values())
    groups = [
        group
        for group in _grouped(_placed(framework, tensors))
        if (below is None or group.size < below)
        and not client._core.recognise(group.begin, group.size)
    ]
    moved = sum(len(group.members) for group in groups)
    if groups:
        _move(framework, groups, client)
    return Shared(moved, sum(group.size for group in groups), len(tensors) - moved)


def _walk(framework: Framework, target: Any) -> Iterator[Any]:
    if isinstance(target, Mapping):
        for value in target.values():
            yield from _walk(framework, value)
        return
    tensors = framework.tensors_in(target)
    if tensors is None:
        raise ArgumentTypeError(f"share_() takes {framework.takes}, not {shown(target)}")
    yield from tensors


def _placed(framework: Framework, tensors: Iterable[Any]) -> Iterator[tuple[Any, Place]]:
    """Those that have memory, and where."""
    with _Refusing(framework):
        for tensor in tensors:
            place = framework.place_of(tensor)
            if place is None:
                continue
            if not place.begin:
                raise InvalidArgumentError(f"{framework.title} has a tensor without its memory")
            yield tensor, place


def _grouped(places: Iterable[tuple[Any, Place]]) -> Iterator[_Group]:
    """By memory, not by storage: two imports of one array are two storages over it."""
    group: _Group | None = None
    for tensor, place in sorted(places, key=lambda pair: pair[1].begin):
        if group is None or place.begin >= group.end:
            if group is not None:
                yield group
            group = _Group(place.begin, place.begin, [])
        group.end = max(group.end, place.begin + place.size)
        group.members.append((tensor, place))
        if (place.first - group.begin) % place.item_bytes:
            raise LayoutError(
                "a tensor does not begin on a multiple of its elements' size in memory that it "
                "shares with others; copy it first"
            )
    if group is not None:
        yield group


def _move(framework: Framework, groups: list[_Group], client: Client) -> None:
    # Not from the first byte on: Paddle imports no address twice, and the block is one import. So
    # the first tensor can be got by name in this process, too.
    size = _ALIGNMENT
    for group in groups:
        group.offset = size
        size += -(-group.size // _ALIGNMENT) * _ALIGNMENT
    memory = client.empty((size,), dtype="uint8")
    address = memory._address
    assert address is not None
    for group in groups:
        ctypes.memmove(address + group.offset, group.begin, group.size)
    block = framework.over(memory)
    homes = [
        (*member, framework.home_of(member[0])) for group in groups for member in group.members
    ]
    try:
        with _Refusing(framework):
            for tensor, offset in _destinations(groups):
                framework.move(tensor, block, offset)
            for tensor, offset in _destinations(groups):
                place = framework.place_of(tensor)
                if place is None or place.first != address + offset:
                    raise UnsupportedError(
                        f"this version of {framework.title} keeps a tensor where it is"
                    )
    except BaseException:
        for tensor, place, go_home in homes:
            if framework.place_of(tensor) != place:
                go_home()
        raise


def _destinations(groups: list[_Group]) -> Iterator[tuple[Any, int]]:
    """Each tensor, and where in the block its first element comes to lie."""
    for group in groups:
        for tensor, place in group.members:
            yield tensor, group.offset + place.first - group.begin


class _Refusing:
    """Frameworks' own refusals become errors with a code."""

    def __init__(self, framework: Framework) -> None:
        self._title = framework.title

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Error | MemoryError):
            raise NotExportableError(f"{self._title} refuses to move a tensor: {error}") from error
