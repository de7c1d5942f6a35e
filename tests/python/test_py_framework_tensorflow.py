# SPDX-License-Identifier: Apache-2.0
"""TensorFlow in another process, which must never abort."""

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
    pytest.mark.skipif(
        not importlib.util.find_spec("tensorflow"), reason="TensorFlow is not installed"
    ),
]


@pytest.fixture(scope="module")
def tf_peer(session_client: tidl.Client) -> Iterator[Peer]:
    setup = "import tensorflow as tf, gc\nimport numpy as np\nclient = tidl.connect()"
    with Peer(setup, environment={"TF_CPP_MIN_LOG_LEVEL": "3"}) as peer:
        yield peer


def test_exchange_without_a_copy(client: tidl.Client, tf_peer: Peer, name: str) -> None:
    tf_peer.do(
        "x = client.empty((8, 4)); x.to_numpy().fill(1)\nt = x.to_tensorflow()\n"
        f"p = client.publish({name!r}, t)"
    )
    assert tf_peer.ask("(p.copied, p.path)") == (False, "allocated")
    mine = client.get(name, access="write").to_numpy()
    assert mine.sum() == 32
    mine[2, 3] = -5
    assert tf_peer.ask("float(tf.reduce_sum(t))") == 26
    inode = memfd_inode(mine.ctypes.data)
    address = tf_peer.ask("np.asarray(memoryview(t)).ctypes.data")
    assert memfd_inode(address, tf_peer.pid) == inode


@pytest.mark.parametrize(
    "operation",
    [
        "tf.nn.relu(t)",
        "tf.function(lambda v: tf.negative(v))(t)",
        "tf.function(lambda v: tf.nn.relu(v) * 2, jit_compile=True)(t)",
        "tf.Variable(t).assign_add(t)",
    ],
)
def test_operations_do_not_write_to_their_arguments(
    client: tidl.Client, tf_peer: Peer, name: str, operation: str
) -> None:
    client.publish(name, np.arange(4, dtype="float32"))
    tf_peer.do(f"t = client.get({name!r}).to_tensorflow()\nr = {operation}\ndel t")
    assert client.get(name).to_numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("view", ["a[1:]", "a.T", "a[:, ::2]", "a[::-1]"])
def test_what_would_abort_or_fail_is_refused(
    client: tidl.Client, tf_peer: Peer, name: str, view: str
) -> None:
    a = client.empty((4, 4)).to_numpy()
    client.publish(name, eval(view, {"a": a}))
    with pytest.raises(PeerError, match="copy it as") as caught:
        tf_peer.do(f"client.get({name!r}).to_tensorflow()")
    assert caught.value.code == "LAYOUT"


def test_unknown_dtypes_are_refused(tf_peer: Peer) -> None:
    with pytest.raises(PeerError, match="float8_e5m2") as caught:
        tf_peer.do("client.empty((4,), dtype='float8_e5m2').to_tensorflow()")
    assert caught.value.code == "DTYPE"


@pytest.mark.parametrize("dtype", ["bool", "uint16", "int64", "bfloat16", "float64", "complex128"])
def test_variables_are_published_by_their_value(
    client: tidl.Client, tf_peer: Peer, name: str, dtype: str
) -> None:
    tf_peer.do(f"v = tf.Variable(tf.zeros((3,), {dtype!r}))\np = client.publish({name!r}, v)")
    assert tf_peer.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(name).dtype == dtype


@pytest.mark.parametrize(
    ("tensor", "code", "text"),
    [
        ("tf.constant('text')", "DTYPE", "string"),
        ("tf.Variable('text')", "DTYPE", "string"),
        ("tf.ragged.constant([[1], [2, 3]])", "INVALID_ARGUMENT", "several tensors"),
        ("tf.sparse.from_dense([[1, 0]])", "INVALID_ARGUMENT", "several tensors"),
        ("tf.IndexedSlices(tf.ones(1), tf.zeros(1))", "INVALID_ARGUMENT", "several tensors"),
    ],
)
def test_tensors_that_are_not_plain_memory(
    client: tidl.Client, tf_peer: Peer, name: str, tensor: str, code: str, text: str
) -> None:
    with pytest.raises(PeerError, match=text) as caught:
        tf_peer.do(f"client.publish({name!r}, {tensor})")
    assert caught.value.code == code
    assert client.list(name) == []


def test_symbolic_tensors_are_refused(tf_peer: Peer, name: str) -> None:
    publish = f"tf.autograph.experimental.do_not_convert(lambda v: client.publish({name!r}, v))"
    with pytest.raises(PeerError, match="symbolic") as caught:
        tf_peer.do(f"tf.function({publish})(tf.ones(3))")
    assert caught.value.code == "INVALID_ARGUMENT"


def test_paddle_is_not_imported_after_tensorflow(tf_peer: Peer) -> None:
    with pytest.raises(PeerError, match="import paddle before tensorflow") as caught:
        tf_peer.do("client.empty((3,)).to_paddle()")
    assert caught.value.code == "MISSING_FRAMEWORK"
    assert tf_peer.ask("'paddle' in sys.modules") is False


def test_tensor_keeps_the_lease(client: tidl.Client, tf_peer: Peer, name: str) -> None:
    client.publish(name, np.arange(3))
    tf_peer.do(f"t = client.get({name!r}).to_tensorflow()")
    assert [holder.pid for holder in client.inspect(name).holders] == [tf_peer.pid]
    tf_peer.do("del t; gc.collect(); client.dispatch()")
    assert is_let_go(client, name)
