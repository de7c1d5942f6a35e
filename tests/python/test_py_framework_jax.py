# SPDX-License-Identifier: Apache-2.0
"""JAX in another process: the same memory, never a silent copy."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest
from python_brokers import is_let_go, memfd_inode
from python_peer import Peer, PeerError

import tidl

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed"),
]


@pytest.fixture(scope="module")
def jax_peer(session_client: tidl.Client) -> Iterator[Peer]:
    setup = "import jax, gc\nimport jax.numpy as jnp\nimport numpy as np\nclient = tidl.connect()"
    with Peer(setup) as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, jax_peer: Peer, name: str) -> None:
    jax_peer.do(
        "x = client.empty((8, 4)); x.to_numpy().fill(1)\na = x.to_jax()\n"
        f"p = client.publish({name!r}, a)"
    )
    assert jax_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    mine[2, 3] = -5
    assert jax_peer.ask("float(jnp.sum(a))") == 26
    inode = memfd_inode(mine.ctypes.data)
    assert memfd_inode(jax_peer.ask("a.unsafe_buffer_pointer()"), jax_peer.pid) == inode


def test_read_only_memory_needs_no_word(client: tidl.Client, jax_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(4, dtype="float32"))
    jax_peer.do(f"a = client.get({name!r}).to_jax()")
    assert jax_peer.ask("(a + 1).tolist()") == [1, 2, 3, 4]


def test_donated_memory_is_not_written_to(client: tidl.Client, jax_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(4, dtype="float32"))
    jax_peer.do(
        f"a = client.get({name!r}).to_jax()\nb = jax.jit(lambda v: v + 1, donate_argnums=0)(a)"
    )
    assert jax_peer.ask("b.tolist()") == [1, 2, 3, 4]
    assert client.get(name).to_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "narrowed"),
    [
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("float64", "float32"),
        ("complex128", "complex64"),
    ],
)
def test_wide_types_need_x64(jax_peer: Peer, dtype: str, narrowed: str) -> None:
    jax_peer.do(f"x = client.empty((3,), dtype={dtype!r})")
    with pytest.raises(PeerError, match=rf"jax_enable_x64.* or publish it as {narrowed}") as caught:
        jax_peer.do("x.to_jax()")
    assert caught.value.code == "DTYPE"
    jax_peer.do(
        "with jax.enable_x64(True):\n a = x.to_jax()\n"
        f"assert a.dtype == {dtype!r} and a.unsafe_buffer_pointer() == x._address"
    )


@pytest.mark.parametrize("view", ["a[1:]", "a[:, ::2]", "a[::-1]", "a[:, :1]"])
def test_what_jax_would_copy_is_refused(
    client: tidl.Client, jax_peer: Peer, name: str, view: str
) -> None:
    a = client.empty((4, 4)).to_numpy()
    client.publish(name, eval(view, {"a": a}))
    with pytest.raises(PeerError, match="copy it as") as caught:
        jax_peer.do(f"client.get({name!r}).to_jax()")
    assert caught.value.code == "LAYOUT"


def test_permuted_memory_is_taken(client: tidl.Client, jax_peer: Peer, name: str) -> None:
    a = client.empty((2, 3, 4)).to_numpy()
    a[...] = np.arange(24).reshape(2, 3, 4)
    client.publish(name, a.transpose(2, 0, 1))
    jax_peer.do(
        f"x = client.get({name!r}); b = x.to_jax()\n"
        f"assert b.unsafe_buffer_pointer() == x._address\np = client.publish({name!r}, b, "
        "replace=True)"
    )
    assert jax_peer.ask("b.tolist()") == a.transpose(2, 0, 1).tolist()
    assert jax_peer.ask("p.copied") is False
    assert client.get(name).strides == (1, 12, 4)


def test_a_jax_that_copies_is_refused(jax_peer: Peer) -> None:
    jax_peer.do(
        "real = jax.dlpack.from_dlpack\n"
        "jax.dlpack.from_dlpack = lambda x, copy: real(x, copy=copy) + 0\n"
        "x = client.empty((4,))"
    )
    try:
        with pytest.raises(PeerError, match="copied the tensor") as caught:
            jax_peer.do("x.to_jax()")
    finally:
        jax_peer.do("jax.dlpack.from_dlpack = real")
    assert caught.value.code == "COPY_NEEDED"


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "bool", "int32", "complex64"])
def test_own_arrays_are_copied_once(
    client: tidl.Client, jax_peer: Peer, name: str, dtype: str
) -> None:
    jax_peer.do(f"p = client.publish({name!r}, jnp.ones((2, 3), dtype={dtype!r}))")
    assert jax_peer.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(name).dtype == dtype


@pytest.mark.parametrize(
    ("array", "kind", "text"),
    [
        ("jax.random.key(0)", "DtypeError", "key_data"),
        ("gone", "InvalidArgumentError", "deleted"),
        (
            "jax.jit(lambda v: client.publish('never', v))(there)",
            "NotExportableError",
            "tracer",
        ),
    ],
)
def test_arrays_without_memory(jax_peer: Peer, name: str, array: str, kind: str, text: str) -> None:
    jax_peer.do("there = jnp.ones(3); gone = jnp.ones(3); gone.delete()")
    with pytest.raises(PeerError, match=text) as caught:
        jax_peer.do(f"client.publish({name!r}, {array})")
    assert caught.value.kind == kind


def test_array_keeps_the_lease(client: tidl.Client, jax_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3, dtype="float32"))
    jax_peer.do(f"a = client.get({name!r}).to_jax()")
    assert [holder.pid for holder in client.inspect(name).holders] == [jax_peer.pid]
    jax_peer.do("del a; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)
