# SPDX-License-Identifier: Apache-2.0
"""What publishing says and does: copies, names, replacement, retention, rights, metadata."""

from __future__ import annotations

import array
import ctypes
import os
from collections.abc import Callable

import fake_dlpack as dl
import numpy as np
import pytest
from python_brokers import eventually
from python_peer import Peer

import tidl

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_allocated_memory_is_not_copied(client: tidl.Client, name: str) -> None:
    x = client.empty((8, 4), dtype="float32")
    publication = client.publish(name, x)
    assert publication == tidl.Publication(
        name=name,
        generation=publication.generation,
        copied=False,
        path="allocated",
        reason=None,
        tensor_bytes=128,
        exposed_bytes=PAGE,
        survives_restart=False,
        retention="until-idle",
        aliases_previous=False,
        tensor_count=1,
        copied_count=0,
        access="shared",
        moved_bytes=0,
        neighbour_bytes=0,
    )
    assert publication.generation > 0


@pytest.mark.dlpack_rule("P7")
def test_allocation_is_fresh_zero_and_on_a_page(client: tidl.Client) -> None:
    x = client.empty((100,), dtype="uint8")
    assert x.to_numpy().ctypes.data % PAGE == 0
    assert not x.to_numpy().any()
    assert (x.name, x.generation, x.access, x.readonly) == (None, 0, "write", False)
    assert x.owner == os.getuid()


def test_foreign_memory_is_copied_and_says_so(client: tidl.Client, name: str) -> None:
    publication = client.publish(name, np.ones((8, 4), dtype="float32"))
    assert (publication.copied, publication.path, publication.reason) == (True, "copied", "foreign")


def test_copy_never(client: tidl.Client, name: str) -> None:
    with pytest.raises(tidl.CopyNeededError) as caught:
        client.publish(name, np.ones(3), copy=False)
    assert caught.value.code == "COPY_NEEDED"
    assert isinstance(caught.value, BufferError)
    assert isinstance(caught.value, ValueError)
    assert client.list(f"{name}*") == []
    assert not client.publish(name, client.empty((3,)), copy=False).copied


def test_copy_always(client: tidl.Client, name: str) -> None:
    x = client.full((4,), 1, dtype="int32")
    publication = client.publish(name, x, copy=True)
    assert (publication.copied, publication.reason) == (True, "requested")
    x.to_numpy()[:] = 2
    assert client.get(name).to_numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.dlpack_rule("C19")
def test_attached_memory_is_published_again_without_a_copy(
    client: tidl.Client, peer: Peer, name: str
) -> None:
    x = client.zeros((4,), dtype="int32")
    client.publish(f"{name}/a", x)
    peer.do(
        f"y = client.get({f'{name}/a'!r}, access='write')\n"
        f"p = client.publish({f'{name}/b'!r}, y.to_numpy()[1:3])"
    )
    assert peer.ask("(p.copied, p.path)") == (False, "attached")
    client.get(f"{name}/b", access="write").to_numpy()[:] = 5
    assert x.to_numpy().tolist() == [0, 5, 5, 0]


def test_copy_on_write_memory_is_copied(client: tidl.Client, peer: Peer, name: str) -> None:
    client.publish(f"{name}/a", np.zeros(4))
    y = client.get(f"{name}/a", access="copy_on_write").to_numpy()
    y[:] = 3
    with pytest.raises(tidl.CopyNeededError) as caught:
        client.publish(f"{name}/b", y[1:], copy=False)
    assert caught.value.reason == "private_map"
    publication = client.publish(f"{name}/b", y)
    assert (publication.copied, publication.reason) == (True, "private_map")
    assert peer.ask(f"client.get({f'{name}/b'!r}).to_numpy().tolist()") == [3.0] * 4


@pytest.mark.dlpack_rule("C13")
def test_readonly_numpy_arrays_are_published_as_copies(client: tidl.Client, name: str) -> None:
    a = np.arange(6).reshape(2, 3)
    a.flags.writeable = False
    assert client.publish(name, a).copied
    assert client.get(name).to_numpy().tolist() == a.tolist()


@pytest.mark.dlpack_rule("X6")
def test_taken_name_needs_replace(client: tidl.Client, name: str) -> None:
    first = client.publish(name, np.zeros(2))
    with pytest.raises(tidl.ExistsError) as caught:
        client.publish(name, np.ones(2))
    assert caught.value.code == "EXISTS"
    assert isinstance(caught.value, FileExistsError)
    old = client.get(name)
    second = client.publish(name, np.ones(2), replace=True)
    assert second.generation > first.generation
    assert old.to_numpy().tolist() == [0, 0]
    assert client.get(name).to_numpy().tolist() == [1, 1]
    assert old.generation == first.generation


def test_replacing_onto_the_same_memory_is_reported(client: tidl.Client, name: str) -> None:
    x = client.empty((4,))
    client.publish(name, x)
    assert client.publish(name, x.to_numpy()[:2], replace=True).aliases_previous
    assert not client.publish(name, np.ones(2), replace=True).aliases_previous


def test_retain_owner_ends_with_the_client(session_client: tidl.Client, name: str) -> None:
    with tidl.connect() as client:
        assert client.publish(name, np.ones(3), retain="owner").retention == "owner"
        kept = session_client.get(name)
    assert eventually(lambda: session_client.list(name) == [])
    assert kept.to_numpy().tolist() == [1, 1, 1]


def test_retain_persist_outlives_the_client(session_client: tidl.Client, name: str) -> None:
    with tidl.connect() as client:
        client.publish(name, np.ones(3))
    assert session_client.get(name).to_numpy().tolist() == [1, 1, 1]
    info = session_client.inspect(name)
    assert eventually(lambda: not session_client.inspect(name).publisher.connected)
    assert info.retention == "until-idle"


def test_metadata_travels(client: tidl.Client, peer: Peer, name: str) -> None:
    metadata = {"step": 3, "unit": "m/s", "axes": ["x", "y"], "é": None}
    client.publish(name, np.ones(3), metadata=metadata)
    assert peer.ask(f"client.get({name!r}).metadata") == metadata
    assert client.inspect(name).metadata == metadata
    assert client.empty((1,)).metadata is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": 1.5, "b": object()},
        {"a": float("nan")},
        [1],
        {"a": "x" * 5000},
        {1: 2},
        {"a": [{None: 1}]},
    ],
)
def test_bad_metadata(client: tidl.Client, name: str, metadata: object) -> None:
    with pytest.raises(tidl.MetadataError) as caught:
        client.publish(name, np.ones(3), metadata=metadata)  # type: ignore[arg-type]
    assert caught.value.code == "METADATA"
    assert client.list(name) == []


def test_mode_is_kept_and_wider_ones_want_expose(client: tidl.Client, name: str) -> None:
    x = client.empty((4096,), dtype="float32").to_numpy()
    client.publish(f"{name}/whole", x, mode=0o644)
    assert client.inspect(f"{name}/whole").mode == 0o644
    with pytest.raises(tidl.Error) as caught:
        client.publish(f"{name}/part", x[:10], mode=0o644)
    assert caught.value.code in ("COPY_NEEDED", "INVALID_ARGUMENT", "PERMISSION")
    publication = client.publish(f"{name}/part", x[:10], mode=0o644, expose=True)
    assert publication.exposed_bytes == 4 * 4096
    assert client.publish(f"{name}/copy", x[:10], mode=0o644, copy=True).exposed_bytes == PAGE


@pytest.mark.dlpack_rule("C3", "C4")
def test_capsules_are_used_up(client: tidl.Client, name: str) -> None:
    a = np.arange(6, dtype="int32")
    for is_versioned in (True, False):
        capsule = a.__dlpack__(max_version=(1, 0) if is_versioned else None)
        client.publish(f"{name}/{is_versioned}", capsule)
        used = b"used_dltensor_versioned" if is_versioned else b"used_dltensor"
        assert dl.capsule_name(capsule) == used
        with pytest.raises(tidl.InvalidArgumentError, match="used already"):
            client.publish(f"{name}/again", capsule)
        assert client.get(f"{name}/{is_versioned}").to_numpy().tolist() == a.tolist()


@pytest.mark.parametrize(
    ("obj", "dtype", "shape"),
    [
        (array.array("d", [1, 2, 3]), "float64", (3,)),
        (array.array("H", [1, 2, 3]), "uint16", (3,)),
        (b"abc", "uint8", (3,)),
        (bytearray(b"abc"), "uint8", (3,)),
        (memoryview(b"abcdef").cast("B", (2, 3)), "uint8", (2, 3)),
        (memoryview(b"abcdef")[::-2], "uint8", (3,)),
        ((ctypes.c_int32 * 4)(1, 2, 3, 4), "int32", (4,)),
        (b"", "uint8", (0,)),
    ],
)
def test_buffers(
    client: tidl.Client, name: str, obj: object, dtype: str, shape: tuple[int, ...]
) -> None:
    client.publish(name, obj)
    tensor = client.get(name)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)
    assert tensor.to_numpy().tolist() == np.asarray(memoryview(obj)).tolist()  # type: ignore[arg-type]


def test_buffer_is_let_go(client: tidl.Client, name: str) -> None:
    data = bytearray(b"abc")
    client.publish(name, data)
    data.append(1)  # BufferError while somebody holds the buffer


def test_array_interface_alone(client: tidl.Client, name: str) -> None:
    class Image:
        def __init__(self) -> None:
            self.array = np.arange(6, dtype="uint8").reshape(2, 3)

        @property
        def __array_interface__(self) -> dict[str, object]:
            return self.array.__array_interface__

    client.publish(name, Image())
    assert client.get(name).to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("thing", [[1, 2], (np.ones(3),), object(), 3.5])
def test_what_is_no_tensor_learns_of_mappings(
    client: tidl.Client, name: str, thing: object
) -> None:
    with pytest.raises(tidl.ArgumentTypeError, match=r"is no tensor: .* or a mapping of names"):
        client.publish(name, thing)


def test_full(client: tidl.Client) -> None:
    assert client.full((2, 3), 1.5).to_numpy().tolist() == [[1.5] * 3] * 2
    assert client.full(3, True, dtype=bool).to_numpy().tolist() == [True] * 3
    assert client.full((1000,), -7, dtype=np.int8).to_numpy().tolist() == [-7] * 1000
    assert client.full((3,), 2 - 1j, dtype="complex64").to_numpy().tolist() == [2 - 1j] * 3
    assert client.full((0,), 1).shape == (0,)
    with pytest.raises(tidl.InvalidArgumentError, match="does not fit"):
        client.full((3,), 300, dtype="uint8")
    with pytest.raises(tidl.ArgumentTypeError):
        client.full((3,), "x", dtype="float32")
    with pytest.raises(tidl.UnsupportedError):
        client.full((3,), 1, dtype="float8_e4m3fn")


@pytest.mark.parametrize(
    ("value", "word"), [(1.0, 0x3F80), (-2.5, 0xC020), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82)]
)
def test_full_bfloat16_rounds_to_even(client: tidl.Client, value: float, word: int) -> None:
    managed = dl.Consumer(client.full((3,), value, dtype="bfloat16").__dlpack__())
    assert managed.dtype == (dl.BFLOAT, 16, 1)
    assert list(ctypes.cast(managed.tensor.data, ctypes.POINTER(ctypes.c_uint16))[:3]) == [word] * 3


@pytest.mark.parametrize(
    "dtype", ["float32", np.float32, np.dtype("float32"), "torch.float32", "f4"]
)
def test_dtype_spellings(client: tidl.Client, dtype: object) -> None:
    assert client.empty((1,), dtype=dtype).dtype == "float32"


@pytest.mark.parametrize(
    ("shape", "expected"), [(3, (3,)), ([2, 3], (2, 3)), (np.int64(2), (2,)), ((), ())]
)
def test_shape_spellings(client: tidl.Client, shape: object, expected: tuple[int, ...]) -> None:
    assert client.empty(shape).shape == expected


@pytest.mark.skipif(os.geteuid() != 0 or os.getegid() != 0, reason="needs to be root")
def test_group_0_is_not_the_callers_own(name: str, start_peer: Callable[..., Peer]) -> None:
    """Of a publisher whose own group is another."""
    peer = start_peer("import os\nos.setegid(12345)\nclient = tidl.connect()")
    for index, group in enumerate((0, "root", None, 12345)):
        peer.do(f"client.publish({f'{name}/{index}'!r}, b'x', mode=0o640, group={group!r})")
    groups = [peer.ask(f"client.inspect({f'{name}/{index}'!r}).group") for index in range(4)]
    assert groups == [0, 0, 12345, 12345]
