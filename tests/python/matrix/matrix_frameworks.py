# SPDX-License-Identifier: Apache-2.0
"""How each framework takes a tensor, tells its address, reads it, and writes to it.

`take` makes the framework's tensor of a `tidl.Tensor`, `own` one in the framework's own memory.
Values are bytes in row-major order, so that no number is converted on the way.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from typing import Any

import numpy as np
from fake_dlpack import Consumer

import tidl


def described(capsule: Any) -> np.ndarray:
    """What a capsule describes, as opaque elements, without a copy."""
    consumer = Consumer(capsule)
    tensor = consumer.tensor
    size = tensor.dtype.bits * tensor.dtype.lanes // 8
    shape = consumer.shape
    compact = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    strides = consumer.strides if tensor.strides else compact
    if not math.prod(shape):
        return np.empty(shape, f"V{size}")

    class Memory:
        __array_interface__ = {  # noqa: RUF012
            "version": 3,
            "data": (tensor.data + tensor.byte_offset, False),
            "typestr": f"|V{size}",
            "shape": shape,
            "strides": tuple(stride * size for stride in strides),
        }

    return np.asarray(Memory())


class Framework:
    """One framework; the defaults are for those that speak DLPack in full."""

    module = ""
    #: Data types and layouts that it holds but has no operation to fill with ones.
    unwritten: frozenset[str] = frozenset()
    can_write = True
    #: How the matrix uses it, where that is not what comes by default.
    note = ""

    def __init__(self) -> None:
        self.load()

    def load(self) -> None:
        self.m = importlib.import_module(self.module)

    def version(self) -> str:
        return str(self.m.__version__)

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        raise NotImplementedError

    def own(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def capsule(self, obj: Any) -> Any:
        return obj.__dlpack__()

    def address(self, obj: Any) -> int:
        consumer = Consumer(self.capsule(obj))
        return int(consumer.tensor.data or 0) + int(consumer.tensor.byte_offset)

    def read(self, obj: Any) -> bytes:
        capsule = self.capsule(obj)
        return described(capsule).tobytes()

    def fill(self, obj: Any) -> None:
        raise NotImplementedError


class NumPy(Framework):
    module = "numpy"

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_numpy()

    def own(self, array: np.ndarray) -> Any:
        return array.copy()

    def address(self, obj: Any) -> int:
        return int(obj.ctypes.data)

    def read(self, obj: Any) -> bytes:
        return bytes(obj.tobytes())

    def fill(self, obj: Any) -> None:
        obj[...] = 1


class Torch(Framework):
    module = "torch"
    unwritten = frozenset({"repeated"})  # torch wants each element written once

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_torch(**options)

    def own(self, array: np.ndarray) -> Any:
        return self.m.tensor(array)

    def address(self, obj: Any) -> int:
        return int(obj.data_ptr())

    def read(self, obj: Any) -> bytes:
        return bytes(obj.contiguous().flatten().view(self.m.uint8).numpy().tobytes())

    def fill(self, obj: Any) -> None:
        obj.fill_(1)


class OldNumPy(NumPy):
    note = "Debian 12's `python3-numpy`"


class OldTorch(Torch):
    note = "Debian 12's `python3-torch`"


class Paddle(Framework):
    module = "paddle"

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_paddle(**options)

    def own(self, array: np.ndarray) -> Any:
        return self.m.to_tensor(array)

    def address(self, obj: Any) -> int:
        return int(obj.data_ptr())

    def read(self, obj: Any) -> bytes:
        return bytes(obj.numpy().tobytes())

    def fill(self, obj: Any) -> None:
        obj.fill_(1)


class Jax(Framework):
    module = "jax"
    can_write = False
    note = "with `jax_enable_x64`"

    def load(self) -> None:
        super().load()
        self.m.config.update("jax_enable_x64", True)

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_jax()

    def own(self, array: np.ndarray) -> Any:
        return self.m.numpy.array(array)

    def address(self, obj: Any) -> int:
        return int(obj.unsafe_buffer_pointer()) if obj.size else 0

    def read(self, obj: Any) -> bytes:
        return np.asarray(obj).tobytes()


class TensorFlow(Framework):
    module = "tensorflow"
    can_write = False

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_tensorflow()

    def own(self, array: np.ndarray) -> Any:
        return self.m.constant(array)

    def read(self, obj: Any) -> bytes:
        return bytes(self.m.identity(obj).numpy().tobytes())


class Taichi(Framework):
    module = "taichi"
    note = "permuted tensors by `to_taichi(axes=tensor.compact_axes)`"

    def load(self) -> None:
        super().load()
        ti = self.m
        ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False, cpu_max_num_threads=1)

        def copy(target, source):  # type: ignore[no-untyped-def]
            for place in ti.grouped(source):
                target[place] = source[place]

        def ones(target):  # type: ignore[no-untyped-def]
            for place in ti.grouped(target):
                target[place] = 1

        any_array = ti.types.ndarray()
        copy.__annotations__ = {"target": any_array, "source": any_array}
        ones.__annotations__ = {"target": any_array}
        self.copy, self.ones = ti.kernel(copy), ti.kernel(ones)

    def version(self) -> str:
        return ".".join(str(part) for part in self.m.__version__)

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        axes = tensor.compact_axes
        if axes is None:
            return tensor.to_taichi(**options)
        return tensor.to_taichi(axes=axes, **options).transpose(np.argsort(axes))

    def own(self, array: np.ndarray) -> Any:
        own = self.m.ndarray(self.m.f32, array.shape)
        own.from_numpy(array)
        return own

    def address(self, obj: Any) -> int:
        return int(obj.ctypes.data)

    def read(self, obj: Any) -> bytes:
        copy = np.empty_like(obj)  # in the same order of axes
        self.copy(self.argument(copy), self.argument(obj))
        return copy.tobytes()

    def fill(self, obj: Any) -> None:
        self.ones(self.argument(obj))

    def argument(self, array: np.ndarray) -> np.ndarray:
        """What a kernel takes: the axes in the order in which they lie in memory."""
        if array.flags.c_contiguous:
            return array
        return array.transpose(np.argsort([-stride for stride in array.strides], kind="stable"))


class TvmFfi(Framework):
    module = "tvm_ffi"
    can_write = False  # its tensors have no operations at all

    def load(self) -> None:
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # else imported for seconds
        super().load()

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_tvm(**options)

    def own(self, array: np.ndarray) -> Any:
        return self.m.from_dlpack(array.copy())


class Tvm(TvmFfi):
    module = "tvm"
    can_write = True
    note = "`tvm_ffi` once `tvm` is imported"

    def own(self, array: np.ndarray) -> Any:
        return self.m.runtime.tensor(array)

    def read(self, obj: Any) -> bytes:
        return bytes(obj.numpy().tobytes())

    def fill(self, obj: Any) -> None:
        obj.copyfrom(np.ones_like(obj.numpy()))


class OnnxRuntime(Framework):
    module = "onnxruntime"
    note = "takes tensors by its own `OrtValue.from_dlpack`"
    unwritten = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})  # it takes NumPy's types

    def take(self, tensor: tidl.Tensor, *, readonly_ok: bool = False) -> Any:
        return self.m.OrtValue.from_dlpack(tensor.unflagged() if readonly_ok else tensor)

    def own(self, array: np.ndarray) -> Any:
        return self.m.OrtValue.ortvalue_from_numpy(array)

    def address(self, obj: Any) -> int:
        return int(obj.data_ptr())

    def fill(self, obj: Any) -> None:
        obj.update_inplace(np.ones_like(obj.numpy()))


class Warp(Framework):
    module = "warp"
    note = "takes tensors by its own `warp.from_dlpack`"

    def load(self) -> None:
        super().load()
        self.m.config.quiet = True
        self.m.init()

    def take(self, tensor: tidl.Tensor, *, readonly_ok: bool = False) -> Any:
        return self.m.from_dlpack(tensor.unflagged() if readonly_ok else tensor)

    def own(self, array: np.ndarray) -> Any:
        return self.m.array(array, device="cpu")

    def address(self, obj: Any) -> int:
        return int(obj.ptr or 0)

    def fill(self, obj: Any) -> None:
        obj.fill_(1)


class MXNet(Framework):
    module = "mxnet"
    note = "after `mxnet.util.set_np_shape(True)`"

    def load(self) -> None:
        super().load()
        self.m.util.set_np_shape(True)

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_mxnet(**options)

    def own(self, array: np.ndarray) -> Any:
        return self.m.nd.array(array, dtype=array.dtype)

    def capsule(self, obj: Any) -> Any:
        return obj.to_dlpack_for_read()

    def read(self, obj: Any) -> bytes:
        return bytes(obj.asnumpy().tobytes())

    def fill(self, obj: Any) -> None:
        obj[:] = 1
        obj.wait_to_read()


class CuPy(Framework):
    module = "cupy"

    def load(self) -> None:
        pass  # never needed: it takes nothing that is here

    def version(self) -> str:
        return ""

    def take(self, tensor: tidl.Tensor, **options: bool) -> Any:
        return tensor.to_cupy()


FRAMEWORKS: dict[str, type[Framework]] = {
    "numpy": NumPy,
    "torch": Torch,
    "paddle": Paddle,
    "taichi": Taichi,
    "jax": Jax,
    "tensorflow": TensorFlow,
    "mxnet": MXNet,
    "tvm-ffi": TvmFfi,
    "tvm": Tvm,
    "onnxruntime": OnnxRuntime,
    "warp": Warp,
    "numpy-1.24": OldNumPy,
    "torch-1.13": OldTorch,
    "cupy": CuPy,
}

# Nothing that a user would see.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
