# SPDX-License-Identifier: Apache-2.0
"""torch's tensors in shareable memory: what is too small to be shared in place is moved there.

    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.Adam(model.parameters())
    tidl.torch.share_(model, client)               # its parameters stay the same objects
    client.publish("model", model.state_dict())    # nothing is copied: training goes on in it

Imports torch when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidl._arguments import shown
from tidl._errors import ArgumentTypeError, DeviceError

if TYPE_CHECKING:
    from tidl._client import Client

__all__ = ["Shared", "share_"]

_ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Shared:
    """What `share_()` has done.

    Attributes:
        tensors: how many tensors lie in shareable memory now that did not before.
        bytes: of their storages, copied once.
        left: how many were left where they are, since their storage is not below the limit.
    """

    tensors: int
    bytes: int
    left: int


def share_(target: Any, client: Client, *, below: int | None = None) -> Shared:
    """Moves tensors into one new block of shareable memory, in place (`Tensor.set_`).

    Tensors and parameters stay the same objects, so that optimizers and other modules keep them;
    those that share a storage go on sharing it. NumPy arrays and views made before keep the old
    memory. No other thread may use them during the call.

    Args:
        target: a tensor, a module (its parameters and buffers), or a mapping of tensors.
        client: where the memory comes from.
        below: only storages of fewer bytes: `65536` leaves what `publish(copy=False)` shares in
            place. None: all.

    Raises:
        ArgumentTypeError: it is none of these.
        DeviceError: a tensor is not on the CPU.
        QuotaError, NoMemoryError: there is no room for it.
    """
    import torch

    groups: dict[int, list[Any]] = {}
    left = 0
    for tensor in _tensors_of(target):
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise DeviceError("only dense tensors on the CPU can be moved into shareable memory")
        size = tensor.untyped_storage().nbytes()
        if size and (below is None or size < below):
            groups.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        else:
            left += 1
    sizes = [group[0].untyped_storage().nbytes() for group in groups.values()]
    if groups:
        total = sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
        block = torch.utils.dlpack.from_dlpack(client.empty((total,), dtype="uint8"))
        offset = 0
        for group, size in zip(groups.values(), sizes, strict=True):
            _move(group, size, block, offset)
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
    return Shared(sum(map(len, groups.values())), sum(sizes), left)


def _tensors_of(target: Any) -> Iterator[Any]:
    """Each tensor object once."""
    import torch

    if isinstance(target, torch.nn.Module):
        yield from target.parameters()
        yield from target.buffers()
    elif isinstance(target, torch.Tensor):
        yield target
    elif isinstance(target, Mapping):
        for value in target.values():
            yield from _tensors_of(value)
    else:
        raise ArgumentTypeError(
            f"share_() takes a tensor, a module or a mapping of tensors, not {shown(target)}"
        )


def _move(group: list[Any], size: int, block: Any, offset: int) -> None:
    """All tensors over one storage of `size` bytes."""
    import torch

    old = torch.empty(0, dtype=torch.uint8).set_(group[0].untyped_storage())
    block[offset : offset + size].copy_(old[:size])
    with torch.no_grad():
        for tensor in group:
            first = tensor.storage_offset() + offset // tensor.element_size()
            shape, strides = tensor.size(), tensor.stride()
            tensor.set_(block.untyped_storage(), first, shape, strides)
