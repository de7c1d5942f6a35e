# SPDX-License-Identifier: Apache-2.0
"""torch's tensors in shareable memory: what is too small to be shared in place is moved there.

    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.Adam(model.parameters())
    tidl.torch.share_(model, client)               # its parameters stay the same objects
    client.publish("model", model.state_dict())    # nothing is copied: training goes on in it

Imports torch when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidl._errors import DeviceError
from tidl._share import Place, Shared, share
from tidl.adapters._common import load

if TYPE_CHECKING:
    from tidl._client import Client
    from tidl._tensor import Tensor

__all__ = ["Shared", "share_"]


def share_(target: Any, client: Client, *, below: int | None = None) -> Shared:
    """Moves tensors into one new block of shareable memory, in place (`Tensor.set_`).

    Tensors and parameters stay the same objects, so that optimizers and other modules keep them;
    those that share memory go on sharing it. What lies in memory of this client already, because it
    was made there or shared in place, is left there. NumPy arrays, views and detached tensors that
    were made before, such as those of a `state_dict()`, keep the old memory, and torch refuses to
    go backward through what was computed before. No other thread may use the tensors during the
    call.

    Args:
        target: a tensor, a module (its parameters and buffers), or a mapping of them.
        client: where the memory comes from.
        below: only storages of fewer bytes: `65536` leaves what `publish(copy=False)` shares in
            place. None: all.

    Raises:
        ArgumentTypeError: it is none of these.
        DeviceError: a tensor is not on the CPU.
        NotExportableError: torch refuses to move one, or it has no memory yet (lazy modules).
        QuotaError, NoMemoryError: there is no room for it.

    After an error all tensors are where they were.
    """
    return share(_Torch(), target, client, below)


class _Torch:
    title = "torch"
    takes = "a tensor, a module or a mapping of them"

    def __init__(self) -> None:
        self._torch = load("torch", "torch")

    def tensors_in(self, target: Any) -> Iterable[Any] | None:
        if isinstance(target, self._torch.nn.Module):
            return chain(target.parameters(), target.buffers())
        return (target,) if isinstance(target, self._torch.Tensor) else None

    def place_of(self, tensor: Any) -> Place | None:
        if tensor.device.type != "cpu" or tensor.layout != self._torch.strided:
            raise DeviceError("only dense tensors on the CPU can be moved into shareable memory")
        storage = tensor.untyped_storage()
        begin, size, item = storage.data_ptr(), storage.nbytes(), tensor.element_size()
        return Place(begin + tensor.storage_offset() * item, begin, size, item) if size else None

    def over(self, memory: Tensor) -> Any:
        return self._torch.from_dlpack(memory)

    def home_of(self, tensor: Any) -> Callable[[], None]:
        storage, first = tensor.untyped_storage(), tensor.storage_offset()
        shape, strides = tensor.size(), tensor.stride()
        return lambda: self._set(tensor, storage, first, shape, strides)

    def move(self, tensor: Any, block: Any, offset: int) -> None:
        first = offset // tensor.element_size()
        self._set(tensor, block.untyped_storage(), first, tensor.size(), tensor.stride())

    def _set(self, tensor: Any, storage: Any, first: int, shape: Any, strides: Any) -> None:
        # What was made in inference mode can be changed there only: elsewhere torch does it first
        # and raises then.
        mode = self._torch.inference_mode if tensor.is_inference() else self._torch.no_grad
        with mode():
            tensor.set_(storage, first, shape, strides)
