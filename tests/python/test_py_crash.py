# SPDX-License-Identifier: Apache-2.0
"""Processes killed at any moment leave no lease of theirs and lose nothing of the living."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from python_brokers import eventually
from python_peer import Peer

import tidl

# Says each step, so that the moment of death can be chosen by their number.
LOOPS = {
    "getting": """
while True:
    sign(); x = client.get({name!r}, access="write"); sign(); a = x.to_numpy(); sign(); del a, x
""",
    "allocating": """
while True:
    sign(); x = client.empty((1000,)); sign(); client.publish({name!r} + "/own", x, replace=True)
    sign(); x.release()
""",
    "copying": """
while True:
    sign(); client.publish({name!r} + "/own", np.ones(300000), replace=True)
""",
    "waiting": """
sign()
import threading
for i in range(3):
    threading.Thread(target=client.get, args=({name!r} + "/never",),
        kwargs={{"timeout": None}}).start()
    sign()
while True:
    sign(); client.get({name!r}).release()
""",
    "owning": """
while True:
    sign(); client.publish({name!r} + "/owned", np.ones(3), retain="owner", replace=True)
    sign(); client.remove({name!r} + "/owned")
""",
}


@pytest.mark.dlpack_rule("X5")
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_killed_at_any_moment(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str, loop: str
) -> None:
    x = client.empty((4,), dtype="int64")
    x.to_numpy()[:] = [1, 2, 3, 4]
    client.publish(name, x)
    chance = random.Random(name.partition("/")[0])
    for _ in range(6):
        peer = start_peer("import numpy as np\nclient = tidl.connect()")
        peer.start(loop.format(name=name))
        for _ in range(chance.randrange(1, 40)):
            peer.await_sign()
        peer.kill()
        assert eventually(partial(is_forgotten, client, name, peer.pid))
        assert client.get(name).to_numpy().tolist() == [1, 2, 3, 4]
        # A dead owner's go after a grace period.
        assert eventually(lambda: client.list(f"{name}/owned") == [])
    left = client.list(f"{name}/own")
    if left:  # complete, or not there
        assert client.get(f"{name}/own").nbytes in (4000, 2400000)


def is_forgotten(client: tidl.Client, name: str, pid: int) -> bool:
    for entry in client.list(f"{name.partition('/')[0]}/**"):
        try:
            inspection = client.inspect(entry.name)
        except tidl.NotFoundError:
            continue
        if any(holder.pid == pid for holder in inspection.holders):
            return False
        if inspection.publisher.pid == pid and inspection.publisher.connected:
            return False
    return True


@pytest.mark.dlpack_rule("X5")
def test_killed_publisher_leaves_its_tensor(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    peer = start_peer("import numpy as np\nclient = tidl.connect()")
    peer.do(f"x = client.full((4,), 9, dtype='int32'); client.publish({name!r}, x)")
    mine = client.get(name, access="write").to_numpy()
    peer.kill()
    assert eventually(lambda: not client.inspect(name).publisher.connected)
    mine[0] = 1
    other = start_peer("import numpy as np\nclient = tidl.connect()")
    assert other.ask(f"client.get({name!r}).to_numpy().tolist()") == [1, 9, 9, 9]


@pytest.mark.dlpack_rule("X5")
def test_killed_reader_does_not_disturb_the_publisher(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    x = client.empty((4,), dtype="int32")
    client.publish(name, x)
    peer = start_peer("import numpy as np\nclient = tidl.connect()")
    peer.do(f"y = client.get({name!r}, access='write'); a = y.to_numpy(); a[:] = 3")
    assert {holder.pid for holder in client.inspect(name).holders} >= {peer.pid}
    peer.kill()
    assert eventually(lambda: is_forgotten(client, name, peer.pid))
    assert x.to_numpy().tolist() == [3] * 4


@pytest.mark.dlpack_rule("X5", "X7")
def test_a_forked_child_does_not_keep_a_dead_parents_lease(
    client: tidl.Client, start_peer: Callable[..., Peer], name: str
) -> None:
    client.publish(name, np.ones(3))
    peer = start_peer("client = tidl.connect()")
    peer.do(f"x = client.get({name!r})")
    peer.do("import signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\n    os._exit(0)")
    child = peer.ask("child")
    try:
        peer.kill()
        assert eventually(lambda: client.inspect(name).holders == ())
    finally:
        os.kill(child, signal.SIGKILL)
