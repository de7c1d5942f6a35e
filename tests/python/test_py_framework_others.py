# SPDX-License-Identifier: Apache-2.0
"""Frameworks that take tensors by a `from_dlpack` of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
from python_peer import Peer, PeerError

import tidl

pytestmark = pytest.mark.frameworks


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="no ONNX Runtime")
def test_onnxruntime(client: tidl.Client, start_peer: Callable[..., Peer], name: str) -> None:
    peer = start_peer(
        "from onnxruntime import OrtValue\nimport numpy as np\nclient = tidl.connect()"
    )
    peer.do(
        "x = client.zeros((3, 4)); v = OrtValue.from_dlpack(x)\nassert v.data_ptr() == x._address\n"
        f"p = client.publish({name!r}, v)\nv.update_inplace(np.ones((3, 4), 'float32'))"
    )
    assert peer.ask("p.copied") is False
    assert client.get(name).to_numpy().sum() == 12
    peer.do(
        f"own = OrtValue.ortvalue_from_numpy(np.array([True, False]))\n"
        f"p = client.publish({name + '/own'!r}, own)"
    )
    assert peer.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(f"{name}/own").dtype == "bool"
    with pytest.raises(PeerError) as caught:
        peer.do(f"OrtValue.from_dlpack(client.get({name!r}))")
    assert caught.value.code == "READ_ONLY"
    peer.do(f"v = OrtValue.from_dlpack(client.get({name!r}).unflagged())")
    assert peer.ask("float(v.numpy().sum())") == 12


@pytest.mark.skipif(not importlib.util.find_spec("warp"), reason="no Warp")
def test_warp(client: tidl.Client, start_peer: Callable[..., Peer], name: str) -> None:
    peer = start_peer("import warp as wp\nwp.init()\nimport numpy as np\nclient = tidl.connect()")
    peer.do(
        "x = client.zeros((3, 4)); a = wp.from_dlpack(x)\nassert a.ptr == x._address\n"
        f"p = client.publish({name!r}, a)\na.fill_(1.0)"
    )
    assert peer.ask("p.copied") is False
    assert client.get(name).to_numpy().sum() == 12
    peer.do(f"p = client.publish({name + '/own'!r}, wp.zeros(3, dtype=wp.vec3))")
    assert peer.ask("(p.copied, p.reason)") == (True, "foreign")
    assert client.get(f"{name}/own").shape == (3, 3)
    with pytest.raises(PeerError) as caught:
        peer.do(f"wp.from_dlpack(client.get({name!r}))")
    assert caught.value.code == "READ_ONLY"
