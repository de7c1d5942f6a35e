# SPDX-License-Identifier: Apache-2.0
"""Each bad input gives its own stable code, the built-in that fits, and a sentence."""

from __future__ import annotations

import builtins
import copy
import os
import pickle
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_brokers import broker_pids, end_brokers

import tidl
from tidl import _errors


class Unclear:
    """Neither true nor false, nor a number."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class ForeignDevice:
    """A tensor in a GPU's memory, as far as it says."""

    def __init__(self, device: int) -> None:
        self.device = device

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, **keywords: object) -> object:
        raise AssertionError("asked for a capsule in vain")


def full(client: tidl.Client, value: object, dtype: str) -> tidl.Tensor:
    return client.full(2, value, dtype=dtype)


def released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


Call = Callable[[tidl.Client, str], Any]

BAD_CALLS: dict[str, tuple[str, type[BaseException], Call]] = {
    "unknown name": ("NOT_FOUND", KeyError, lambda c, n: c.get(n)),
    "inspect unknown name": ("NOT_FOUND", KeyError, lambda c, n: c.inspect(n)),
    "remove unknown name": ("NOT_FOUND", KeyError, lambda c, n: c.remove(n)),
    "another's namespace": ("NOT_FOUND", KeyError, lambda c, n: c.get(f"12345:{n}")),
    "empty name": ("NAME_INVALID", ValueError, lambda c, n: c.get("")),
    "empty part": ("NAME_INVALID", ValueError, lambda c, n: c.get("a//b")),
    "dots": ("NAME_INVALID", ValueError, lambda c, n: c.publish("a/../b", b"x")),
    "control character": ("NAME_INVALID", ValueError, lambda c, n: c.publish("a\nb", b"x")),
    "NUL": ("NAME_INVALID", ValueError, lambda c, n: c.publish("a\0b", b"x")),
    "surrogate": ("NAME_INVALID", ValueError, lambda c, n: c.get("a\ud800")),
    "long name": ("NAME_INVALID", ValueError, lambda c, n: c.get("a" * 256)),
    "name of another type": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.get(7)),  # type: ignore[arg-type]
    "unknown user": ("NOT_FOUND", KeyError, lambda c, n: c.get("no-such-user:x")),
    "timeout": ("TIMEOUT", TimeoutError, lambda c, n: c.get(n, timeout=0.01)),
    "generation of the past": (
        "GENERATION_GONE",
        KeyError,
        lambda c, n: (c.publish(n, b"x"), c.publish(n, b"y", replace=True), c.get(n, generation=1)),
    ),
    "generation 0": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.get(n, generation=0)),
    "unknown dtype": ("DTYPE", BufferError, lambda c, n: c.empty((1,), dtype="float31")),
    "other byte order": ("DTYPE", BufferError, lambda c, n: c.empty((1,), dtype=np.dtype(">f4"))),
    "array of other byte order": (
        "DTYPE",
        BufferError,
        lambda c, n: c.publish(n, np.ones(3, dtype=">f4")),
    ),
    "objects": ("DTYPE", BufferError, lambda c, n: c.publish(n, np.array([{}, ()], dtype=object))),
    "text": ("DTYPE", BufferError, lambda c, n: c.publish(n, np.array(["a", "b"]))),
    "records": ("DTYPE", BufferError, lambda c, n: c.publish(n, np.zeros(2, dtype="f4,i4"))),
    "times": ("DTYPE", BufferError, lambda c, n: c.publish(n, np.zeros(2, dtype="M8[s]"))),
    "long double": ("DTYPE", BufferError, lambda c, n: c.publish(n, np.zeros(2, np.longdouble))),
    "dtype of lone surrogates": ("DTYPE", ValueError, lambda c, n: c.empty(1, dtype="\ud800")),
    "dtype with NUL": ("DTYPE", ValueError, lambda c, n: c.empty(1, dtype="float32\0x")),
    "dtype of the other byte order": ("DTYPE", ValueError, lambda c, n: c.empty(1, dtype=">f4")),
    "Taichi's word as text": ("DTYPE", ValueError, lambda c, n: c.empty(1, dtype="i32")),
    "fraction in integers": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 1.5, "int32")),
    "NaN in integers": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: full(c, float("nan"), "int32"),
    ),
    "infinity in integers": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: full(c, float("inf"), "uint8"),
    ),
    "None in integers": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, None, "int32")),
    "text in integers": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, "x", "int32")),
    "text of a number": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, "3", "float32")),
    "text of a complex": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, "3j", "complex64")),
    "complex in floats": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, 1j, "float64")),
    "NumPy's complex in floats": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: full(c, np.complex64(1 + 1j), "float64"),
    ),
    "None in bool": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, None, "bool")),
    "2 in bool": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 2, "bool")),
    "300 in uint8": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 300, "uint8")),
    "1e39 in float32": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 1e39, "float32")),
    "1e39 in complex64": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 1e39, "complex64")),
    "7e4 in float16": ("INVALID_ARGUMENT", ValueError, lambda c, n: full(c, 7e4, "float16")),
    "3.4e38 in bfloat16": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: full(c, 3.4e38, "bfloat16"),
    ),
    "huge integer in float64": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: full(c, 10**5000, "float64"),
    ),
    "scalar that is none": ("INVALID_ARGUMENT", TypeError, lambda c, n: full(c, Unclear(), "bool")),
    "huge timeout": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.get(n, timeout=10**400)),
    "huger timeout": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.get(n, timeout=10**5000)),
    "timeout of text": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.get(n, timeout="5")),  # type: ignore[arg-type]
    "timeout of several": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.get(n, timeout=np.array([1, 2])),  # type: ignore[arg-type]
    ),
    "huge generation": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.get(n, generation=10**5000)),
    "huge keep": (
        "LIMIT",
        RuntimeError,
        lambda c, n: c.publish(n, b"x", keep=10**5000),
    ),
    "huge negative keep": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", keep=-(10**5000)),
    ),
    "huge group": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.publish(n, b"x", group=10**5000)),
    "huger extent": ("LAYOUT", ValueError, lambda c, n: c.empty((10**5000,))),
    "access of several": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", access=np.array([1, 2])),  # type: ignore[arg-type]
    ),
    "retention of several": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", retain=np.array([1, 2])),  # type: ignore[arg-type]
    ),
    "attach of several": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.get(n, access=np.array([1, 2])),  # type: ignore[arg-type]
    ),
    "replace of several": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.publish(n, b"x", replace=np.array([1, 2])),  # type: ignore[arg-type]
    ),
    "expose that is unclear": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.publish(n, b"x", expose=Unclear()),  # type: ignore[arg-type]
    ),
    "autostart that is unclear": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: tidl.connect(autostart=Unclear()),  # type: ignore[arg-type]
    ),
    "negative extent": ("LAYOUT", ValueError, lambda c, n: c.empty((2, -1))),
    "huge extent": ("LAYOUT", ValueError, lambda c, n: c.empty((2**63,))),
    "overflowing product": ("LAYOUT", ValueError, lambda c, n: c.empty((2**40, 2**40))),
    "overflowing bytes": (
        "LAYOUT",
        ValueError,
        lambda c, n: c.empty((2**61,), dtype="complex128"),
    ),
    "65 dimensions": ("LAYOUT", ValueError, lambda c, n: c.empty((1,) * 65)),
    "shape of text": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.empty("3")),
    "shape of floats": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.empty((1.5,))),
    "more than the machine has": ("QUOTA", MemoryError, lambda c, n: c.empty((2**50,), dtype="u8")),
    "no tensor": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, object())),
    "number": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, 3.0)),
    "list": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, [1, 2])),
    "number in a bundle": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, {"a": 3})),
    "key that is no text": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, {1: b"x"})),
    "CUDA tensor": (
        "UNSUPPORTED",
        NotImplementedError,
        lambda c, n: c.publish(n, ForeignDevice(2)),
    ),
    "managed CUDA tensor": (
        "UNSUPPORTED",
        BufferError,
        lambda c, n: c.publish(n, ForeignDevice(13)),
    ),
    "Vulkan tensor": ("DEVICE", BufferError, lambda c, n: c.publish(n, ForeignDevice(7))),
    "live copy": ("COPY_NEEDED", BufferError, lambda c, n: c.publish(n, b"x", access="live")),
    "unknown access": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.publish(n, b"x", access="w")),
    "unknown attach": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.get(n, access="rw")),
    "no seconds to live": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", retain=0),
    ),
    "not a number of seconds to live": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", retain=float("nan")),
    ),
    "unknown retention": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", retain="ever"),  # type: ignore[arg-type]
    ),
    "keep 0": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.publish(n, b"x", keep=0)),
    "stream": ("UNSUPPORTED", NotImplementedError, lambda c, n: c.publish(n, b"x", stream=1)),
    "device of empty": (
        "UNSUPPORTED",
        NotImplementedError,
        lambda c, n: c.empty((1,), device="cuda:0"),
    ),
    "device of get": ("UNSUPPORTED", NotImplementedError, lambda c, n: c.get(n, device="cuda")),
    "wait above a word": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.wait(n, newer_than="1"),  # type: ignore[arg-type]
    ),
    "wait above less than nothing": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.wait(n, newer_than=-1),
    ),
    "get above a word": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.get(n, newer_than=True),
    ),
    "release of no generation": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.wait_released(n, generation=0),
    ),
    "watch of a bad pattern": ("NAME_INVALID", ValueError, lambda c, n: c.watch(n + "//x")),
    "watch of one kind as a word": (
        "INVALID_ARGUMENT",
        TypeError,
        lambda c, n: c.watch(n, kinds="published"),
    ),
    "watch of an unknown kind": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.watch(n, kinds=["exploded"]),
    ),
    "watch of nothing": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.watch(n, kinds=[])),
    "mode": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.publish(n, b"x", mode=0o777)),
    "mode of text": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, b"x", mode="rw")),  # type: ignore[arg-type]
    "group": ("INVALID_ARGUMENT", ValueError, lambda c, n: c.publish(n, b"x", group="no-group")),
    "group with NUL": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", group="a\0b"),
    ),
    "group of lone surrogates": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: c.publish(n, b"x", group="\ud800"),
    ),
    "released buffer": ("INVALID_ARGUMENT", BufferError, lambda c, n: c.publish(n, released())),
    "copy": ("INVALID_ARGUMENT", TypeError, lambda c, n: c.publish(n, b"x", copy="no")),  # type: ignore[arg-type]
    "pickled tensor without a name": (
        "INVALID_ARGUMENT",
        ValueError,
        lambda c, n: pickle.dumps(c.empty(1)),
    ),
    "copied tensor": ("UNSUPPORTED", NotImplementedError, lambda c, n: copy.deepcopy(c.empty(1))),
    "pickled client": ("UNSUPPORTED", NotImplementedError, lambda c, n: pickle.dumps(c)),
}


@pytest.mark.dlpack_rule("P22", "C9")
@pytest.mark.parametrize(("code", "kind", "call"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_call(
    client: tidl.Client, name: str, code: str, kind: type[BaseException], call: Call
) -> None:
    with pytest.raises(tidl.Error) as caught:
        call(client, name)
    assert caught.value.code == code
    assert isinstance(caught.value, kind)
    assert len(str(caught.value)) > 15
    assert str(caught.value) == caught.value.args[0]  # and not its repr, as with KeyError
    client.publish(f"{name}/after", b"x")  # the broker and the client go on
    assert client.get(f"{name}/after").to_numpy().tolist() == [120]


def test_every_code_of_libtidl_has_a_class_and_every_class_a_builtin() -> None:
    header = Path(__file__).parents[2] / "include" / "tidl" / "error.h"
    codes = {
        line.split("=")[0].strip().removeprefix("TIDL_ERR_")
        for line in header.read_text().splitlines()
        if line.strip().startswith("TIDL_ERR_")
    }
    assert codes == set(_errors.BY_CODE) - {"UNKNOWN"}
    for code, kind in _errors.BY_CODE.items():
        assert kind.code == code
        builtin = {
            base
            for base in kind.__mro__
            if base.__module__ == "builtins" and base not in (object, BaseException, Exception)
        }
        assert builtin or code in ("UNKNOWN", "CANCELLED")
        assert getattr(tidl, kind.__name__) is kind
        assert pickle.loads(pickle.dumps(kind("a sentence"))).args == ("a sentence",)
        assert str(kind("a sentence")) == "a sentence"


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.get("x"),
        lambda c: c.list(),
        lambda c: c.inspect("x"),
        lambda c: c.remove("x"),
        lambda c: c.empty((1,)),
        lambda c: c.publish("x", b"x"),
        lambda c: c.fileno(),
        lambda c: c.dispatch(),
        lambda c: c.broker,
        lambda c: c.shutdown(),
        lambda c: c.__enter__().list(),
    ],
)
def test_closed_client(session_client: tidl.Client, call: Callable[[tidl.Client], Any]) -> None:
    client = tidl.connect()
    client.close()
    client.close()
    assert client.closed
    assert "closed" in repr(client)
    with pytest.raises(tidl.ClosedError) as caught:
        call(client)
    assert caught.value.code == "CLOSED"
    assert isinstance(caught.value, ConnectionError)


def test_client_as_context_manager(session_client: tidl.Client) -> None:
    with tidl.connect() as client:
        assert not client.closed
        assert client.broker.address in repr(client)
    assert client.closed


@pytest.mark.dlpack_rule("P15", "P25")
def test_broker_gone(own_runtime: Path) -> None:
    client = tidl.connect()
    x = client.full((4,), 3, dtype="int32")
    client.publish("x", x)
    y = client.get("x")
    end_brokers(own_runtime, signal.SIGKILL)
    with pytest.raises(tidl.BrokerGoneError) as caught:
        client.list()
    assert caught.value.code == "BROKER_GONE"
    assert isinstance(caught.value, builtins.ConnectionError)
    x.to_numpy()[:] = 4
    assert y.to_numpy().tolist() == [4] * 4  # what is mapped stays
    y.release()
    client.close()
    with tidl.connect() as again:  # the socket and the lock are reused
        assert again.list() == []


def test_nobody_listens(own_runtime: Path) -> None:
    for address in (own_runtime / "nothing.sock", str(own_runtime / "nothing.sock")):
        with pytest.raises(tidl.NoBrokerError) as caught:
            tidl.connect(address)
        assert caught.value.code == "NO_BROKER"
    with pytest.raises(tidl.NoBrokerError):
        tidl.connect(autostart=False)
    assert broker_pids(own_runtime) == []


def test_wrong_socket(own_runtime: Path) -> None:
    path = own_runtime / "stream.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(tidl.WrongSocketError) as caught:
            tidl.connect(path)
    assert caught.value.code == "WRONG_SOCKET"


def test_a_listener_that_says_nothing(own_runtime: Path) -> None:
    path = own_runtime / "mute.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(tidl.TimedOutError) as caught:
            tidl.connect(path, timeout=0.05)
    assert caught.value.code == "TIMEOUT"


def test_a_listener_that_speaks_another_language(own_runtime: Path) -> None:
    path = own_runtime / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        with tidl_connecting(path) as connecting:
            served, _ = listener.accept()
            with served:
                served.recv(65536)
                served.send(b"\xff" * 100)
                error = connecting()
    assert error.code in ("PROTOCOL", "WRONG_SOCKET")
    assert isinstance(error, tidl.BrokerError)


class tidl_connecting:  # noqa: N801
    """A connect() in a thread; what it raised comes from calling the block's value."""

    def __init__(self, path: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.pool = ThreadPoolExecutor(1)
        self.future = self.pool.submit(tidl.connect, path, timeout=30)

    def __enter__(self) -> Callable[[], tidl.Error]:
        def error() -> tidl.Error:
            raised = self.future.exception(30)
            assert isinstance(raised, tidl.Error)
            return raised

        return error

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()


def test_socket_without_rights(own_runtime: Path) -> None:
    path = own_runtime / "closed.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0)
        pid = os.fork()
        if pid == 0:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may use every socket
            try:
                tidl.connect(path)
            except tidl.PermissionDeniedError as error:
                os._exit(0 if error.code == "PERMISSION" else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_daemon_that_does_not_start(
    own_runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tidld"
    program.write_text("#!/bin/sh\necho 'tidld: not today' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("TIDL_DAEMON", str(program))
    with pytest.raises(tidl.AutostartError, match="not today") as caught:
        tidl.connect()
    assert caught.value.code == "AUTOSTART"


@pytest.mark.parametrize("address", [7, b"\xff\0", "a\0b"])
def test_bad_address(session_client: tidl.Client, address: Any) -> None:
    with pytest.raises((tidl.InvalidArgumentError, TypeError)):
        tidl.connect(address)


def test_address_that_is_too_long(session_client: tidl.Client) -> None:
    with pytest.raises(tidl.InvalidArgumentError) as caught:
        tidl.connect("/tmp/" + "x" * 200)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_no_memory_is_lost_by_failed_calls(client: tidl.Client, name: str) -> None:
    """A publish that fails takes its copy with it."""
    client.publish(name, b"x")
    for _ in range(50):
        with pytest.raises(tidl.ExistsError):
            client.publish(name, np.ones(1000))
    inspection = client.inspect(name)
    assert inspection.holders == ()
    assert client.get(name).to_numpy().tolist() == [120]
