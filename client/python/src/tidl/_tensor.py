# SPDX-License-Identifier: Apache-2.0
"""Tensors in shared memory."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, overload

from tidl import _core, _pickling, _records, _steps
from tidl._arguments import switch, timeout_ms, whole_number
from tidl._errors import DtypeError, UnsupportedError
from tidl._strides import compact_axes

if TYPE_CHECKING:
    import jax
    import mxnet
    import numpy.typing
    import paddle
    import tensorflow
    import torch
    import tvm_ffi
    from typing_extensions import CapsuleType


_NO_COPY = "a tensor is not copied by itself; copy what to_numpy() or to_torch() makes of it"


class Tensor(_core.Tensor):
    """A tensor in shared memory, from `Client.empty()` or `Client.get()`.

    `numpy.asarray(tensor)` gives the same memory, read-only if the tensor is. For other frameworks
    use `to_torch()` and its like. torch, Paddle and Taichi ignore DLPack's read-only flag: writing
    to `torch.from_dlpack(tensor)` of a tensor attached for reading ends the process with SIGSEGV;
    get it with access="write" for that. The same happens to what was made from a tensor before it
    was published as immutable. What they make keeps the memory mapped by itself, also
    after this object is gone or released.

    It has no `len()` and no indexing: use a framework for that.
    """

    @property
    def device(self) -> str:
        """Where the memory is: "cpu"."""
        return "cpu"

    @property
    def metadata(self) -> dict[str, Any] | None:
        """What the publisher attached, a new dict each time, or None."""
        return _records.parse_metadata(self._metadata_json)

    @property
    def compact_axes(self) -> tuple[int, ...] | None:
        """The axes in the order in which they lie in memory, slowest first.

        With the axes in this order the tensor is row-major: `to_taichi(axes=...)` takes them.
        None if no order makes it row-major (it has gaps, negative or zero strides).
        """
        return compact_axes(self.shape, self.strides)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self.released:
            return "<tidl.Tensor released>"
        name = "unpublished" if self.name is None else repr(self.name)
        if self.key is not None:
            name += f"[{self.key!r}]"
        generation = f", generation {self.generation}" if self.generation else ""
        return (
            f"<tidl.Tensor {name}: shape {self.shape}, {self.dtype}, {self.device}, "
            f"access {self.access}{generation}>"
        )

    #: Where it can be got, for a tensor that was not got by name, but published as it is.
    _published: _pickling.Address | None = None
    #: Path in the bundle that it came with.
    _member: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """By name: whoever unpickles it attaches the same memory, with the same access."""
        return _pickling.reduce_tensor(self)

    def __copy__(self) -> Never:
        raise UnsupportedError(_NO_COPY)

    def __deepcopy__(self, memo: object) -> Never:
        raise UnsupportedError(_NO_COPY)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Never:
        # NumPy comes here only after the buffer and __array_interface__ had no word for the dtype.
        raise DtypeError(f"NumPy has no {self.dtype}; use to_torch() or to_paddle()")

    def unflagged(self) -> Unflagged:
        """This tensor for consumers that know only DLPack's old capsule, which cannot say "read".

        The caller vouches that the consumer does not write: on memory attached for reading that
        would be a crash.
        """
        return Unflagged(self)

    # ---- steps ----

    def update(self, *, take_over: bool = False) -> _core.Update:
        """Brackets a write: `with tensor.update() as step:`.

        Its end completes a step, also when the block raises, and wakes who waits for it. `read()`
        of other processes never shows half of it.

        Args:
            take_over: whether to take over an update that another process has open. Without it
                that is done only when nobody else can write the tensor any more.

        Returns:
            A context manager that gives the number of the step being made.

        Raises:
            BusyError: an update is open already, in this process or another one. (On entering.)
            ReadOnlyError: the tensor was not attached for writing.
            InvalidArgumentError: the tensor has no elements.
        """
        return self._update(switch(take_over, "take_over"))

    def wait(self, step: int, timeout: float | None = None) -> int:
        """Waits until a step is complete, asleep in the kernel.

        Args:
            step: its number; `tensor.step + 1` is the next one.
            timeout: in seconds; None waits for ever, 0 does not wait.

        Returns:
            The last complete step, perhaps a later one.

        Raises:
            WriterGoneError: who could have made it has ended or let go of the tensor.
            TimedOutError: it was not made in time.
            AccessError: the tensor is immutable.
            BrokerGoneError: the broker, which tells of writers that go, has gone itself. Waiting
                with a timeout goes on without it.
        """
        return self._wait_step(
            whole_number(step, "step", 0, _steps.LARGEST_STEP), timeout_ms(timeout)
        )

    @overload
    def read(
        self,
        *,
        out: numpy.typing.NDArray[Any] | None = None,
        return_step: Literal[False] = False,
        timeout: float | None = 5.0,
    ) -> numpy.typing.NDArray[Any]: ...
    @overload
    def read(
        self,
        *,
        out: numpy.typing.NDArray[Any] | None = None,
        return_step: Literal[True],
        timeout: float | None = 5.0,
    ) -> tuple[numpy.typing.NDArray[Any], int]: ...
    def read(
        self,
        *,
        out: numpy.typing.NDArray[Any] | None = None,
        return_step: bool = False,
        timeout: float | None = 5.0,
    ) -> numpy.typing.NDArray[Any] | tuple[numpy.typing.NDArray[Any], int]:
        """A copy as the tensor was between two updates.

        Waits while an update is open, and copies again when one was begun meanwhile. It is
        consistent against writers that use `update()` only: what is written outside cannot be
        noticed.

        Args:
            out: copy into this array instead of a new one: row-major, same shape and data type.
            return_step: whether to return (copy, step) rather than the copy.
            timeout: in seconds; None tries for ever, 0 tries once.

        Raises:
            WriterGoneError: a writer has gone in the middle of an update.
            TimedOutError: it was being updated all the time.
            DtypeError: NumPy has no such data type.
            MissingFrameworkError: NumPy is not installed.
        """
        array, step = _steps.read(self, out, timeout_ms(timeout))
        return (array, step) if return_step else array

    def turns(self, index: int, count: int = 2) -> _steps.Turns:
        """Takes turns over the tensor with other processes that do the same.

            turns = tensor.turns(0)                     # the other process: turns(1)
            for _ in range(1000):
                with turns.take(timeout=30):
                    ...                                 # read and write it

        Args:
            index: which one this is, 0 to `count` - 1; number 0 begins.
            count: how many take turns.
        """
        return _steps.Turns(self, index, count)

    # ---- frameworks ----

    def to_numpy(self, *, readonly_ok: bool = False) -> numpy.typing.NDArray[Any]:
        """The same memory as a NumPy array, read-only if the tensor is.

        Args:
            readonly_ok: has no effect here: NumPy itself refuses to write to read-only memory.

        Raises:
            DtypeError: NumPy has no such data type.
            MissingFrameworkError: NumPy is not installed.
        """
        from tidl.adapters.numpy import to_numpy

        return to_numpy(self)

    def to_torch(self, *, readonly_ok: bool = False) -> torch.Tensor:
        """The same memory as a torch tensor.

        torch writes without asking, so what is immutable is mapped copy-on-write for it: the same
        bytes without a copy, and pages that torch writes become this tensor's own.

        Args:
            readonly_ok: accept memory attached for reading. torch does not know what that is:
                writing to such a tensor crashes the process.

        Raises:
            ReadOnlyError: the tensor is read-only, not immutable, and `readonly_ok` was not given.
            LayoutError: negative strides.
            DtypeError: torch has no such data type.
            MissingFrameworkError: torch is not installed.
        """
        from tidl.adapters.torch import to_torch

        return to_torch(self, readonly_ok)

    def to_paddle(self, *, readonly_ok: bool = False) -> paddle.Tensor:
        """The same memory as a Paddle tensor.

        Calling it again while that lives gives the same Paddle tensor: Paddle cannot import one
        address twice.

        Args:
            readonly_ok: as for `to_torch()`.

        Raises:
            ReadOnlyError: as for `to_torch()`.
            BusyError: Paddle has another tensor at the same address.
            LayoutError: negative strides or more than 9 dimensions.
            DtypeError: Paddle has no such data type (uint16 is bfloat16 to it).
            MissingFrameworkError: Paddle is not installed.
        """
        from tidl.adapters.paddle import to_paddle

        return to_paddle(self, readonly_ok)

    def to_taichi(
        self, *, axes: tuple[int, ...] | None = None, readonly_ok: bool = False
    ) -> numpy.typing.NDArray[Any]:
        """The same memory as an argument for a kernel's `ti.types.ndarray()`: a NumPy array.

        Taichi takes row-major arrays without a copy. A permuted tensor has to be handed over
        with its axes in the order of memory, and the kernel's indices follow that order:

            y = client.get("permuted", access="write")  # shape (4, 8), strides (1, 4)
            paint(y.to_taichi(axes=y.compact_axes))     # the kernel sees shape (8, 4)

        Args:
            axes: order in which the kernel sees the axes; None: as they are.
            readonly_ok: as for `to_torch()`.

        Raises:
            LayoutError: not row-major (the message has the axes, if any do), or over 12 dimensions.
            ReadOnlyError: as for `to_torch()`.
            DtypeError: Taichi has no such data type.
            MissingFrameworkError: NumPy is not installed.
        """
        from tidl.adapters.taichi import to_taichi

        return to_taichi(self, axes, readonly_ok)

    def to_jax(self, *, readonly_ok: bool = False) -> jax.Array:
        """The same memory as a JAX array.

        JAX takes its arrays for values that never change. Where others go on writing to the
        memory, take a snapshot: `jax.numpy.array(x.to_jax(), copy=True)`.

        Args:
            readonly_ok: has no effect here: JAX does not write to memory that it was given.

        Raises:
            LayoutError: gaps, negative or zero strides, or not aligned to 64 bytes.
            DtypeError: JAX has no such data type; 64-bit types need `jax_enable_x64`.
            MissingFrameworkError: JAX is not installed.
        """
        from tidl.adapters.jax import to_jax

        return to_jax(self)

    def to_tensorflow(self, *, readonly_ok: bool = False) -> tensorflow.Tensor:
        """The same memory as an eager TensorFlow tensor.

        As for `to_jax()`, take a snapshot where others go on writing: `tf.identity()` is none,
        `tf.constant(x.to_numpy())` is one.

        Args:
            readonly_ok: has no effect here: TensorFlow's operations make new tensors (all but
                `tf.raw_ops.InplaceAdd` and its like, which crash on memory attached for reading).

        Raises:
            LayoutError: not row-major, or not aligned to 64 bytes.
            DtypeError: TensorFlow has no such data type.
            MissingFrameworkError: TensorFlow is not installed.
        """
        from tidl.adapters.tensorflow import to_tensorflow

        return to_tensorflow(self)

    def to_cupy(self, *, readonly_ok: bool = False) -> Never:
        """Raises: CuPy takes a GPU's memory only, and tensors are in host memory.

        Raises:
            DeviceError: always.
        """
        from tidl.adapters.cupy import to_cupy

        to_cupy(self)

    def to_mxnet(self, *, readonly_ok: bool = False) -> mxnet.nd.NDArray:
        """The same memory as an MXNet NDArray.

        Args:
            readonly_ok: as for `to_torch()`.

        Raises:
            ReadOnlyError: as for `to_torch()`.
            LayoutError: not row-major.
            DtypeError: MXNet has no such data type.
            MissingFrameworkError: MXNet is not installed, or not with a NumPy that it knows.
        """
        from tidl.adapters.mxnet import to_mxnet

        return to_mxnet(self, readonly_ok)

    def to_tvm(self, *, readonly_ok: bool = False) -> tvm_ffi.Tensor:
        """The same memory as a TVM tensor.

        Args:
            readonly_ok: as for `to_torch()`.

        Raises:
            ReadOnlyError: as for `to_torch()`.
            LayoutError: `tvm` itself is imported, and the tensor is not row-major or not aligned
                to 64 bytes (`tvm_ffi` alone takes both).
            DtypeError: TVM has no complex types.
            MissingFrameworkError: apache-tvm-ffi is not installed.
        """
        from tidl.adapters.tvm import to_tvm

        return to_tvm(self, readonly_ok)


class Unflagged:
    """A tensor that answers requests for old capsules even when it is read-only."""

    def __init__(self, tensor: Tensor) -> None:
        """Use `Tensor.unflagged()`."""
        self._tensor = tensor

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        return self._tensor._dlpack_unflagged(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()
