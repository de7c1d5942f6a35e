# SPDX-License-Identifier: Apache-2.0
"""Paddle's tensors in shareable memory: what is too small to be shared in place is moved there.

    model = paddle.nn.Linear(64, 10)
    optimizer = paddle.optimizer.Adam(parameters=model.parameters())
    tidl.paddle.share_(model, client)              # its parameters stay the same objects
    client.publish("model", model.state_dict())    # nothing is copied: training goes on in it

Imports Paddle when it is used.

Paddle 3.3.1 has several ways to give a tensor other memory, of which one serves for all tensors:

- `Tensor.set_` refuses parameters. Through `detach()` it takes them, but *writes* to the old memory
  of a tensor with gaps or permuted axes instead of leaving it.
- `Tensor._share_buffer_to` refuses such tensors.
- Setting `Tensor.data`, `_set_impl` and `_share_underline_tensor_to` give the Python object another
  tensor of C++, and whoever has the old one (`detach()`, copies in C++) keeps the old memory.
- `DenseTensor._share_data_with` changes the tensor of C++ itself, whatever its layout, and is what
  Paddle's own `Layer.to()` moves parameters with. Versions for autograd do not count it, so that
  going backward through what was computed before is possible.

The block is one import by DLPack; its end is seen when the last tensor over it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidl._errors import DeviceError, InvalidArgumentError, LayoutError
from tidl._share import Place, Shared, share
from tidl.adapters.paddle import load_paddle

if TYPE_CHECKING:
    from tidl._client import Client
    from tidl._tensor import Tensor

__all__ = ["Shared", "share_"]


def share_(target: Any, client: Client, *, below: int | None = None) -> Shared:
    """Moves tensors into one new block of shareable memory, in place.

    Tensors and parameters stay the same objects, so that optimizers and other layers keep them;
    those that share memory go on sharing it. What lies in memory of this client already, because it
    was made there or shared in place, is left there. NumPy arrays and views that were made before
    keep the old memory. No other thread may use the tensors during the call.

    `set_state_dict()`, `set_value()` and operations in place write to the shared memory. Paddle
    gives a tensor other memory, as without this, in `Layer.to()`, in most initializers and in
    `paddle.nn.utils.vector_to_parameters()`: call this again after them.

    Args:
        target: a tensor, a layer (its parameters and buffers), or a mapping of them, such as
            `layer.state_dict()` or the tensors of `optimizer.state_dict()`.
        client: where the memory comes from.
        below: only storages of fewer bytes: `65536` leaves what `publish(copy=False)` shares in
            place. None: all.

    Raises:
        ArgumentTypeError: it is none of these.
        DeviceError: a tensor is not on the CPU, or sparse, or distributed.
        InvalidArgumentError: a tensor has no memory yet (`paddle.LazyGuard`).
        LayoutError: a tensor has negative strides.
        NotExportableError: Paddle refuses to move one: uint32 and uint64, which it can only import.
        QuotaError, NoMemoryError: there is no room for it.
        MissingFrameworkError: Paddle is not installed, or TensorFlow was imported before it.

    After an error all tensors are where they were.
    """
    return share(_Paddle(), target, client, below)


class _Paddle:
    title = "Paddle"
    takes = "a tensor, a layer or a mapping of them"

    def __init__(self) -> None:
        self._paddle = load_paddle()

    def tensors_in(self, target: Any) -> Iterable[Any] | None:
        if isinstance(target, self._paddle.nn.Layer):
            return chain(target.parameters(), target.buffers())
        return (target,) if isinstance(target, self._paddle.Tensor) else None

    def place_of(self, tensor: Any) -> Place | None:
        is_dense = tensor.is_dense() and not tensor.is_dist()
        if is_dense and not tensor._is_initialized():
            if tensor.size == 0:
                return None
            raise InvalidArgumentError(
                f"the Paddle tensor {tensor.name} has no memory yet: initialize() it first"
            )
        if not is_dense or not tensor.place.is_cpu_place():
            raise DeviceError("only dense tensors on the CPU can be moved into shareable memory")
        if any(stride < 0 for stride in tensor.strides):
            # Paddle computes a storage of nearly 2**64 bytes for those that it imports.
            raise LayoutError("Paddle has no negative strides but those it has imported; copy it")
        first, offset, item = tensor.data_ptr(), tensor.offset, tensor.element_size()
        return Place(first, first - offset, tensor._holder_size(), item)

    def over(self, memory: Tensor) -> Any:
        return memory.to_paddle()

    def home_of(self, tensor: Any) -> Callable[[], None]:
        # Another tensor over the old memory, in the same layout.
        home = self._paddle.empty([0], device="cpu")
        _share_data(home, tensor)
        return lambda: _share_data(tensor, home)

    def move(self, tensor: Any, block: Any, offset: int) -> None:
        if tensor.is_complex():
            # Paddle would convert what is set as the memory of complex tensors, to new memory.
            block = block.view(tensor.dtype)
        there = self._paddle.empty([0], dtype=tensor.dtype, device="cpu")
        there.set_(block, tensor.shape, tensor.strides, offset)
        _share_data(tensor, there)


def _share_data(tensor: Any, source: Any) -> None:
    """Gives a tensor the memory and the layout of another one."""
    tensor.value().get_tensor()._share_data_with(source.value().get_tensor())
