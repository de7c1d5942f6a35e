# SPDX-License-Identifier: Apache-2.0
"""A broker, an honest client with a tensor, and the question whether both are as they were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from python_brokers import eventually
from raw_peer import RawPeer
from tidl_wire import Code
from tidld_process import Broker

import tidl

QUOTA_BYTES = 64 << 20
QUOTA_OPTIONS = ("--quota-uid", str(QUOTA_BYTES), "--quota-total", str(2 * QUOTA_BYTES))
PAGE_BYTES = 4096
RESTORE_S = 8.0
WITNESS = "witness/x"
CONTENT = list(range(1000))


@dataclass(frozen=True)
class Snapshot:
    """All that a client may have changed and its end has to undo."""

    names: dict[tuple[int, str], int]  # generations
    holders: list[tuple[str, str, int]]
    used_bytes: int
    descriptors: list[str]


class World:
    """`client` is the honest one; it holds what it has published as WITNESS."""

    def __init__(self, broker: Broker, *, quota_bytes: int = QUOTA_BYTES) -> None:
        self.broker = broker
        self.quota_bytes = quota_bytes
        self.client = tidl.connect(broker.socket, autostart=False)
        self.witness = self.client.empty((len(CONTENT),), dtype="int32")
        self.witness.to_numpy()[:] = CONTENT
        self.client.publish(WITNESS, self.witness)
        self.probe = RawPeer(broker.socket, name="probe")
        self._peers: list[RawPeer] = []

    def close(self) -> None:
        self.disconnect()
        self.probe.close()
        self.witness.release()
        self.client.close()

    def connect(self, *, says_hello: bool = True) -> RawPeer:
        """A peer that is closed with the test at the latest."""
        peer = RawPeer(self.broker.socket, says_hello=says_hello)
        self._peers.append(peer)
        return peer

    def disconnect(self) -> None:
        while self._peers:
            self._peers.pop().close()

    # ---- how things stand ----

    def used_bytes(self) -> int:
        """What this uid is charged for, as the broker says when asked for too much."""
        reply = self.probe.ask("allocate", data_size_bytes=self.quota_bytes)
        reply.fails_with(Code.QUOTA, r"bytes of shared memory, has \d+ and would need")
        found = re.search(r"has (\d+) ", reply.packet.failure.message.decode())
        assert found
        return int(found[1])

    def snapshot(self) -> Snapshot:
        holders = self.client.inspect(WITNESS).holders
        listing = self.client.list("*:**")
        return Snapshot(
            names={(entry.owner, entry.name): entry.generation for entry in listing},
            holders=sorted((holder.kind, holder.access, holder.pid) for holder in holders),
            used_bytes=self.used_bytes(),
            descriptors=self.broker.descriptors(),
        )

    def is_as(self, before: Snapshot) -> bool:
        return self.snapshot() == before

    def is_welcoming(self) -> bool:
        """Whether somebody new is served now."""
        with RawPeer(self.broker.socket, says_hello=False) as peer:
            with suppress(ConnectionError):
                peer.send("hello", min_version=1, max_version=1)
            reply = peer.receive()
            return reply is not None and reply.kind == "welcome"

    def serves(self) -> None:
        """Checks that an honest client is served and that nothing was lost."""
        assert self.broker.is_running, self.broker.sanitizer_log()
        with tidl.connect(self.broker.socket, autostart=False) as other:
            assert other.get(WITNESS).to_numpy().tolist() == CONTENT
        assert self.witness.to_numpy().tolist() == CONTENT

    def has_its_quota(self) -> None:
        """Checks that memory can be had up to the limit and no further."""
        left = self.quota_bytes - self.used_bytes()
        data_bytes = left // PAGE_BYTES * PAGE_BYTES - PAGE_BYTES
        memory = self.probe.allocate(data_bytes)
        self.probe.refuses(
            Code.QUOTA, "release or remove tensors", "allocate", data_size_bytes=PAGE_BYTES
        )
        memory.close()
        self.probe.release(segments=[memory.id])

    def is_restored(self, before: Snapshot) -> None:
        """Checks that all is as it was: the broker needs a moment, and tells nobody when it has
        seen a connection end, so it is asked until it has."""
        assert self.broker.is_running, self.broker.sanitizer_log()
        eventually(partial(self.is_as, before), RESTORE_S)
        assert self.snapshot() == before
        self.serves()
        self.has_its_quota()
        eventually(partial(self.is_as, before), RESTORE_S)
        assert self.snapshot() == before
        self.broker.check_reports()

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """All peers that are connected inside end with the block, and nothing of them is left."""
        before = self.snapshot()
        yield
        self.disconnect()
        try:
            self.is_restored(before)
        finally:
            self._remove_all_but(before)

    def _remove_all_but(self, before: Snapshot) -> None:
        """So that one failed test does not make all later ones fail."""
        for entry in self.client.list("*:**"):
            if (entry.owner, entry.name) not in before.names:
                self.client.remove(f"{entry.owner}:{entry.name}")
