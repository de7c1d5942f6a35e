# SPDX-License-Identifier: Apache-2.0
"""A tensor handed to a consumer that is written out here, field by field.

P... are the rules of DLPack and its Python protocol for producers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import fake_dlpack as dl
import numpy as np
import pytest
from python_brokers import is_let_go
from python_peer import Peer

import tidl

PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def readonly(client: tidl.Client, name: str) -> tidl.Tensor:
    client.publish(name, np.arange(6, dtype="int32").reshape(2, 3))
    return client.get(name)


@pytest.mark.dlpack_rule("P1")
def test_p1_device(client: tidl.Client) -> None:
    x = client.empty((2,))
    assert x.__dlpack_device__() == (dl.CPU, 0)
    capsule = dl.Consumer(x.__dlpack__())
    assert (capsule.tensor.device.device_type, capsule.tensor.device.device_id) == (dl.CPU, 0)
    assert x.__dlpack_device__() == (dl.CPU, 0)


@pytest.mark.dlpack_rule("P2")
@pytest.mark.parametrize(
    ("max_version", "name"),
    [
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        *(((1, minor), b"dltensor_versioned") for minor in range(10)),
        ((2, 0), b"dltensor_versioned"),
    ],
)
def test_p2_capsule_generation(
    client: tidl.Client, max_version: tuple[int, int] | None, name: bytes
) -> None:
    x = client.empty((2,))
    for copy in (None, True):
        capsule = dl.Consumer(x.__dlpack__(max_version=max_version, copy=copy))
        assert capsule.name == name
        if name == b"dltensor_versioned":
            assert capsule.managed.version.major == 1


@pytest.mark.dlpack_rule("P4", "P5")
@pytest.mark.parametrize("is_versioned", [True, False])
@pytest.mark.parametrize(
    "view", ["a[1:]", "a[::-1]", "a[1:, ::-2]", "a.T", "a[1, 2, ...]", "a[2:3, 1:2]"]
)
def test_p4_p5_first_element_and_strides(
    client: tidl.Client, name: str, view: str, is_versioned: bool
) -> None:
    a = client.empty((3, 5), dtype="int64").to_numpy()
    a[:] = np.arange(15).reshape(3, 5)
    expected = eval(view, {"a": a})
    client.publish(name, expected)
    y = client.get(name, access="write")
    capsule = dl.Consumer(y.__dlpack__(max_version=(1, 0) if is_versioned else None))
    assert capsule.tensor.byte_offset == 0
    assert ctypes.c_int64.from_address(capsule.tensor.data).value == expected.flat[0]
    assert capsule.tensor.ndim == expected.ndim
    if expected.ndim:
        assert capsule.shape == expected.shape
        compact: list[int] = []
        step = 1
        for extent in reversed(expected.shape):
            compact.insert(0, step)
            step *= extent
        elements = [stride // 8 for stride in expected.strides]
        wanted = [
            compact[i] if extent == 1 else elements[i] for i, extent in enumerate(expected.shape)
        ]
        assert list(capsule.strides) == wanted


@pytest.mark.dlpack_rule("P5")
def test_p5_zero_dimensions(client: tidl.Client) -> None:
    x = client.full((), 3, dtype="int32")
    legacy = dl.Consumer(x.__dlpack__())
    assert legacy.tensor.ndim == 0
    assert ctypes.c_int32.from_address(legacy.tensor.data).value == 3
    assert np.from_dlpack(x)[()] == 3


@pytest.mark.dlpack_rule("P6")
@pytest.mark.parametrize("copy", [None, True])
def test_p6_no_elements(client: tidl.Client, copy: bool | None) -> None:
    x = client.empty((3, 0, 2))
    capsule = dl.Consumer(x.__dlpack__(max_version=(1, 0), copy=copy))
    assert capsule.tensor.data is None
    assert (capsule.shape, capsule.strides) == ((3, 0, 2), (2, 2, 1))
    assert np.from_dlpack(x).shape == (3, 0, 2)


@pytest.mark.dlpack_rule("P7")
def test_p7_alignment(client: tidl.Client) -> None:
    for size in (1, 7, 5000):
        x = client.empty((size,), dtype="uint8")
        assert dl.Consumer(x.__dlpack__()).tensor.data % PAGE == 0
        assert dl.Consumer(x.__dlpack__(copy=True)).tensor.data % 64 == 0


@pytest.mark.dlpack_rule("P8")
def test_p8_read_only(readonly: tidl.Tensor, client: tidl.Client) -> None:
    assert dl.Consumer(readonly.__dlpack__(max_version=(1, 0))).flags & dl.READ_ONLY
    assert not dl.Consumer(client.empty((2,)).__dlpack__(max_version=(1, 0))).flags & dl.READ_ONLY
    for max_version in (None, (0, 8)):
        with pytest.raises(BufferError) as caught:
            readonly.__dlpack__(max_version=max_version)
        assert isinstance(caught.value, tidl.ReadOnlyError)
        assert caught.value.code == "READ_ONLY"


@pytest.mark.dlpack_rule("P8")
def test_p8_read_only_by_consent(readonly: tidl.Tensor) -> None:
    unflagged = readonly.unflagged()
    assert unflagged.__dlpack_device__() == (dl.CPU, 0)
    old = dl.Consumer(unflagged.__dlpack__())
    assert old.name == b"dltensor"
    assert dl.Consumer(unflagged.__dlpack__(max_version=(1, 0))).flags & dl.READ_ONLY
    assert dl.Consumer(unflagged.__dlpack__(copy=True)).tensor.data != old.tensor.data
    with pytest.raises(ValueError, match="stream"):
        unflagged.__dlpack__(stream=1)
    with pytest.raises(tidl.DeviceError):
        unflagged.__dlpack__(dl_device=(2, 0))


@pytest.mark.dlpack_rule("P9")
@pytest.mark.parametrize("is_versioned", [True, False])
def test_p9_copies(client: tidl.Client, is_versioned: bool) -> None:
    x = client.full((2, 3), 5, dtype="int32")
    max_version = (1, 0) if is_versioned else None
    address = x.to_numpy().ctypes.data
    for copy in (None, False):
        capsule = dl.Consumer(x.__dlpack__(max_version=max_version, copy=copy))
        assert capsule.tensor.data == address
        assert not is_versioned or not capsule.flags & dl.IS_COPIED
    capsule = dl.Consumer(x.__dlpack__(max_version=max_version, copy=True))
    assert capsule.tensor.data != address
    assert not is_versioned or capsule.flags == dl.IS_COPIED
    ctypes.c_int32.from_address(capsule.tensor.data).value = 6
    assert x.to_numpy().tolist() == [[5] * 3] * 2


@pytest.mark.dlpack_rule("P9")
@pytest.mark.parametrize(
    "view", ["a", "a.T", "a[::-1]", "a[:, ::2]", "np.broadcast_to(a[1], (4, 3))", "a[1, 2]"]
)
def test_p9_copies_of_views_are_compact(client: tidl.Client, name: str, view: str) -> None:
    a = client.empty((2, 3), dtype="int16").to_numpy()
    a[:] = [[1, 2, 3], [4, 5, 6]]
    expected = eval(view, {"a": a, "np": np})
    client.publish(name, expected)
    tensor = client.get(name)
    copied = np.from_dlpack(tensor, copy=True)
    assert copied.tolist() == expected.tolist()
    assert copied.flags.c_contiguous
    assert copied.flags.writeable


@pytest.mark.dlpack_rule("P10")
@pytest.mark.parametrize("device", [(2, 0), (1, 1), (99, 0)])
def test_p10_other_devices(client: tidl.Client, device: tuple[int, int]) -> None:
    x = client.empty((2,))
    with pytest.raises(BufferError) as caught:
        x.__dlpack__(dl_device=device)
    assert isinstance(caught.value, tidl.DeviceError)
    assert caught.value.code == "DEVICE"
    for same in ((1, 0), (1, None)):
        x.__dlpack__(dl_device=same)  # type: ignore[arg-type]


@pytest.mark.dlpack_rule("P11")
def test_p11_streams(client: tidl.Client) -> None:
    x = client.empty((2,))
    x.__dlpack__(stream=None)
    x.__dlpack__(stream=-1)
    for stream in (0, 1, 2, 12345, -2, 2**80):
        with pytest.raises(ValueError, match="stream"):
            x.__dlpack__(stream=stream)
    wrong: list[Any] = [True, "1", 1.0]
    for stream in wrong:
        with pytest.raises(TypeError, match="stream"):
            x.__dlpack__(stream=stream)


@pytest.mark.dlpack_rule("P12")
@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((None,), {}),
        ((), {"unknown": 1}),
        ((), {"max_version": 1}),
        ((), {"max_version": (1,)}),
        ((), {"max_version": (1, "0")}),
        ((), {"dl_device": "cpu"}),
        ((), {"copy": 1}),
    ],
)
def test_p12_wrong_arguments(
    client: tidl.Client, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        client.empty((2,)).__dlpack__(*arguments, **keywords)


@pytest.mark.dlpack_rule("P13")
def test_p13_unused_capsule_gives_the_lease_back(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    for max_version in (None, (1, 0)):
        tensor = client.get(name, access="write")
        capsule = tensor.__dlpack__(max_version=max_version)
        tensor.release()
        client.dispatch()
        assert len(client.inspect(name).holders) == 1
        del capsule
        assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P13")
def test_p13_used_capsule_does_nothing(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    tensor = client.get(name)
    consumer = dl.Consumer(tensor.__dlpack__(max_version=(1, 0)))
    consumer.consume()
    tensor.release()
    consumer.capsule = None
    gc.collect()
    assert len(client.inspect(name).holders) == 1
    assert ctypes.c_double.from_address(consumer.tensor.data).value == 1.0
    consumer.delete()
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P13")
def test_p13_pending_exception_survives_the_destructor(client: tidl.Client) -> None:
    def fail() -> None:
        capsule = client.empty((2,)).__dlpack__()
        assert capsule
        raise RuntimeError("the first")  # the capsule goes while this is on its way

    with pytest.raises(RuntimeError, match="the first"):
        fail()


@pytest.mark.dlpack_rule("P14")
def test_p14_deleter_called_twice(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    for max_version in (None, (1, 0)):
        tensor = client.get(name, access="write")
        consumer = dl.Consumer(tensor.__dlpack__(max_version=max_version))
        consumer.delete()  # as torch 1.13 does, and the destructor then again
        consumer.capsule = None
        assert tensor.to_numpy().tolist() == [1, 1, 1]


@pytest.mark.dlpack_rule("P15")
def test_p15_deleter_from_a_thread_after_disconnect(session_client: tidl.Client, name: str) -> None:
    session_client.publish(name, np.ones(3))
    with tidl.connect() as client:
        consumer = dl.Consumer(client.get(name).__dlpack__(max_version=(1, 0)))
        consumer.consume()
    assert ctypes.c_double.from_address(consumer.tensor.data).value == 1.0
    thread = threading.Thread(target=consumer.delete)
    thread.start()
    thread.join()


@pytest.mark.dlpack_rule("P15")
def test_p15_deleter_in_a_forked_child(client: tidl.Client, name: str) -> None:
    client.publish(name, np.ones(3))
    tensor = client.get(name)
    consumer = dl.Consumer(tensor.__dlpack__(max_version=(1, 0)))
    consumer.consume()
    tensor.release()
    pid = os.fork()
    if pid == 0:
        consumer.delete()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(client.inspect(name).holders) == 1  # the child gave nothing of ours back
    assert ctypes.c_double.from_address(consumer.tensor.data).value == 1.0
    consumer.delete()
    assert is_let_go(client, name)


@pytest.mark.dlpack_rule("P17")
def test_p17_no_null_pointers(client: tidl.Client) -> None:
    for shape in ((2,), (), (0,)):
        for copy in (None, True):
            x = client.empty(shape)
            for max_version in (None, (1, 0)):
                consumer = dl.Consumer(x.__dlpack__(max_version=max_version, copy=copy))
                assert consumer.managed.manager_ctx
                assert consumer.managed.deleter


@pytest.mark.dlpack_rule("P18")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_p18_exports_are_independent(client: tidl.Client, order: tuple[int, int]) -> None:
    x = client.full((2, 3), 4, dtype="int32")
    exports = [dl.Consumer(x.__dlpack__()) for _ in range(2)]
    for export in exports:
        export.consume()
    exports[0].tensor.shape[0] = 77  # nobody else's
    assert exports[1].shape == (2, 3)
    assert x.shape == (2, 3)
    exports[order[0]].delete()
    left = exports[order[1]]
    assert ctypes.c_int32.from_address(left.tensor.data).value == 4
    left.delete()
    assert x.to_numpy().tolist() == [[4] * 3] * 2


@pytest.mark.dlpack_rule("P19")
def test_p19_framework_tensor_outlives_the_tensor(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(3))
    array = np.from_dlpack(client.get(name))
    gc.collect()
    assert array.tolist() == [0, 1, 2]
    assert len(client.inspect(name).holders) == 1
    del array
    assert is_let_go(client, name)


REGULAR = {
    "bool": (6, 8, 1),
    "int8": (0, 8, 1),
    "uint64": (1, 64, 1),
    "float16": (2, 16, 1),
    "bfloat16": (4, 16, 1),
    "complex64": (5, 64, 1),
    "complex128": (5, 128, 1),
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
    "float6_e2m3fn": (15, 6, 1),
    "float6_e3m2fn": (16, 6, 1),
    "float4_e2m1fn": (17, 4, 1),
    "float4_e2m1fnx2": (17, 4, 2),
    "float32x4": (2, 32, 4),
}


@pytest.mark.dlpack_rule("P20", "P21")
@pytest.mark.parametrize(("dtype", "expected"), REGULAR.items())
def test_p20_p21_dtypes(
    client: tidl.Client, name: str, dtype: str, expected: tuple[int, int, int]
) -> None:
    x = client.empty((4, 2), dtype=dtype)
    bits = expected[1] * expected[2]
    assert x.nbytes == (8 * bits + 7) // 8
    client.publish(name, x)
    y = client.get(name)
    assert y.dtype == dtype
    for copy in (None, True):
        assert dl.Consumer(y.__dlpack__(max_version=(1, 0), copy=copy)).dtype == expected


@pytest.mark.dlpack_rule("P23")
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float4_e2m1fn", "float32x2"])
def test_p23_dtypes_that_buffers_lack(client: tidl.Client, dtype: str) -> None:
    x = client.empty((4,), dtype=dtype)
    with pytest.raises(BufferError) as caught:
        memoryview(x)
    assert isinstance(caught.value, tidl.DtypeError)
    assert not hasattr(x, "__array_interface__")
    for ask in (np.asarray, tidl.Tensor.to_numpy):
        with pytest.raises(tidl.DtypeError, match=dtype):
            ask(x)


@pytest.mark.dlpack_rule("P23", "P24")
def test_p23_p24_protocols(client: tidl.Client) -> None:
    x = client.empty((4,))
    for method in ("__len__", "__getitem__", "__cuda_array_interface__", "__iter__"):
        assert not hasattr(x, method)
    with pytest.raises(TypeError):
        iter(x)  # type: ignore[call-overload]


@pytest.mark.dlpack_rule("P25")
def test_p25_after_release(client: tidl.Client, name: str) -> None:
    client.publish(name, np.arange(3))
    tensor = client.get(name)
    array, view = np.from_dlpack(tensor), memoryview(tensor)
    tensor.release()
    tensor.release()
    assert tensor.released
    assert "released" in repr(tensor)
    calls: list[Callable[[], Any]] = [
        tensor.__dlpack__,
        tensor.__dlpack_device__,
        lambda: memoryview(tensor),
        lambda: tensor.__array_interface__,
        tensor.to_numpy,
        lambda: client.publish(f"{name}/b", tensor),
    ]
    attributes = "shape strides dtype nbytes name generation readonly metadata access owner"
    calls += [partial(getattr, tensor, what) for what in attributes.split()]
    for call in calls:
        with pytest.raises(tidl.ReleasedError) as caught:
            call()
        assert caught.value.code == "RELEASED"
    assert array.tolist() == view.tolist() == [0, 1, 2]


@pytest.mark.dlpack_rule("P25")
def test_p25_after_close(session_client: tidl.Client, name: str) -> None:
    session_client.publish(name, np.arange(3))
    with tidl.connect() as client:
        tensor = client.get(name)
        array = np.from_dlpack(tensor)
    assert array.tolist() == [0, 1, 2]
    assert tensor.to_numpy().tolist() == [0, 1, 2]


@pytest.mark.dlpack_rule("P15")
def test_exports_alive_at_exit(start_peer: Callable[..., Peer], name: str) -> None:
    peer = start_peer("import numpy as np\nclient = tidl.connect()")
    peer.do(
        f"client.publish({name!r}, np.ones(3))\n"
        f"x = client.get({name!r}); a = np.from_dlpack(x); m = memoryview(x); c = x.__dlpack__(\n"
        "    max_version=(1, 0))\n"
        "i = x.__array_interface__\n"
        "import builtins\nbuiltins.kept = [x, a, m, c, client]"
    )
    assert peer.end() == 0
