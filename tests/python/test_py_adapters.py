# SPDX-License-Identifier: Apache-2.0
"""What adapters refuse and hand over, seen by stand-ins for the frameworks."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_dlpack import BOOL, Consumer

import tidl


class Taken:
    """What a stand-in made of a tensor."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.options = options
        self.capsule = source.__dlpack__() if hasattr(source, "__dlpack__") else source
        self.consumer = Consumer(self.capsule)

    def unsafe_buffer_pointer(self) -> int:
        return int(self.consumer.tensor.data)


@pytest.fixture(autouse=True)
def frameworks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-ins for all of them; `tvm` itself is not imported."""
    dlpack = SimpleNamespace(from_dlpack=Taken)
    modules: dict[str, Any] = {
        "jax": SimpleNamespace(dlpack=dlpack, config=SimpleNamespace(jax_enable_x64=False)),
        "tensorflow": SimpleNamespace(experimental=SimpleNamespace(dlpack=dlpack)),
        "mxnet": SimpleNamespace(nd=dlpack, util=SimpleNamespace(is_np_shape=lambda: False)),
        "tvm_ffi": dlpack,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "tvm", raising=False)
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    return modules


def attached(client: tidl.Client, name: str, view: np.ndarray, access: str) -> tidl.Tensor:
    client.publish(name, view, replace=True)
    return client.get(name, access=access)


ALL = ["to_jax", "to_tensorflow", "to_mxnet", "to_tvm"]


@pytest.mark.parametrize("take", ALL)
def test_same_memory(client: tidl.Client, take: str) -> None:
    x = client.empty((8, 4))
    taken = getattr(x, take)()
    assert taken.consumer.name == b"dltensor"
    assert taken.consumer.tensor.data == x._address
    assert taken.consumer.shape == (8, 4)


@pytest.mark.parametrize("take", ALL)
def test_reading_attach(client: tidl.Client, name: str, take: str) -> None:
    x = attached(client, name, np.ones((8, 4), "float32"), "read")
    if take in ("to_mxnet", "to_tvm"):
        with pytest.raises(tidl.ReadOnlyError, match="readonly_ok=True"):
            getattr(x, take)()
    assert getattr(x, take)(readonly_ok=True).consumer.tensor.data == x._address


@pytest.mark.parametrize(
    ("view", "refused"),
    [
        ("a.T", {"to_tensorflow", "to_mxnet"}),
        ("a[:, ::2]", {"to_jax", "to_tensorflow", "to_mxnet"}),
        ("a[::-1]", {"to_jax", "to_tensorflow", "to_mxnet"}),
        ("np.broadcast_to(a[0], (3, 4))", {"to_jax", "to_tensorflow", "to_mxnet"}),
        ("a[1:]", {"to_jax", "to_tensorflow"}),
        ("a[4:]", set()),
        ("a[:1, :1]", set()),
        ("a[:1][::-1]", set()),
    ],
)
@pytest.mark.parametrize("take", ALL)
def test_layouts(client: tidl.Client, name: str, view: str, refused: set[str], take: str) -> None:
    a = client.empty((8, 4)).to_numpy()
    x = attached(client, name, eval(view, {"a": a, "np": np}), "write")
    if take in refused:
        with pytest.raises(tidl.LayoutError, match="copy it as"):
            getattr(x, take)()
    else:
        assert getattr(x, take)().consumer.tensor.data == x._address


@pytest.mark.parametrize("view", ["a.T", "a[1:]"])
def test_tvm_itself_is_stricter(
    client: tidl.Client, name: str, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = attached(client, name, eval(view, {"a": client.empty((8, 4)).to_numpy()}), "write")
    x.to_tvm()
    monkeypatch.setitem(sys.modules, "tvm", SimpleNamespace())
    with pytest.raises(tidl.LayoutError, match="TVM"):
        x.to_tvm()


@pytest.mark.parametrize(
    ("take", "dtype"),
    [
        ("to_jax", "float4_e2m1fn"),
        ("to_jax", "int64"),
        ("to_tensorflow", "float8_e5m2"),
        ("to_mxnet", "uint16"),
        ("to_mxnet", "complex64"),
        ("to_tvm", "complex128"),
    ],
)
def test_dtypes_that_are_refused(client: tidl.Client, take: str, dtype: str) -> None:
    with pytest.raises(tidl.DtypeError, match=dtype):
        getattr(client.empty((4,), dtype=dtype), take)()


def test_jax_takes_wide_types_when_told(client: tidl.Client, frameworks: dict[str, Any]) -> None:
    x = client.empty((4,), dtype="int64")
    frameworks["jax"].config.jax_enable_x64 = True
    assert x.to_jax().options == {"copy": False}


def test_a_jax_that_copies_is_refused(client: tidl.Client, frameworks: dict[str, Any]) -> None:
    class Copied(Taken):
        def unsafe_buffer_pointer(self) -> int:
            return 64

    frameworks["jax"].dlpack.from_dlpack = Copied
    with pytest.raises(tidl.CopyNeededError, match="copied the tensor"):
        client.empty((4,)).to_jax()


def test_mxnet_gets_no_strides_and_its_own_bool(client: tidl.Client) -> None:
    tensor = client.empty((2, 1, 3), dtype="bool").to_mxnet().consumer.tensor
    assert not tensor.strides
    assert (tensor.dtype.code, tensor.dtype.bits) == (1, 1)
    assert Consumer(client.empty((2,), dtype="bool").__dlpack__()).dtype == (BOOL, 8, 1)


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_mxnet_wants_shapes_that_it_knows(
    client: tidl.Client, shape: tuple[int, ...], frameworks: dict[str, Any]
) -> None:
    x = client.empty(shape)
    with pytest.raises(tidl.LayoutError, match="set_np_shape"):
        x.to_mxnet()
    frameworks["mxnet"].util.is_np_shape = lambda: True
    assert x.to_mxnet().consumer.shape == shape


def test_cupy_needs_a_gpu(client: tidl.Client) -> None:
    with pytest.raises(tidl.DeviceError, match="needs a GPU"):
        client.empty((3,)).to_cupy()


def test_paddle_is_not_imported_after_tensorflow(client: tidl.Client) -> None:
    with pytest.raises(tidl.MissingFrameworkError, match="import paddle before tensorflow"):
        client.empty((3,)).to_paddle()


def test_subclasses_are_published_as_what_they_are(client: tidl.Client, name: str) -> None:
    class Subclass(np.ndarray):
        pass

    client.publish(name, np.arange(3).view(Subclass))
    assert client.get(name).to_numpy().tolist() == [0, 1, 2]
