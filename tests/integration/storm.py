# SPDX-License-Identifier: Apache-2.0
"""A program that lets client after client die, each at a random moment of its life.

    storm.py SOCKET SEED COUNT

A process of its own, because forking is cheap in a small one. Prints how many have died.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from raw_peer import RawPeer
from tidl_wire import Attach, Retention

CONTENT = bytes(range(64))
ATTACHES = tuple(Attach)
MOST_STEPS = 12


class Life:
    """One client. It says each step on a pipe, and "!" when it only waits for its death."""

    def __init__(self, path: Path, seed: int, pipe: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.pipe = pipe
        self.name = f"storm/{seed % 5}"

    def step(self, sign: bytes = b".") -> None:
        os.write(self.pipe, sign)

    def run(self) -> None:
        with RawPeer(self.path, says_hello=False) as peer:
            self.step()
            peer.ask("hello", min_version=1, max_version=1, client_name="storm")
            while True:
                self.step()
                self.chance.choice(
                    (self.allocate, self.publish, self.get, self.remove, self.leave)
                )(peer)

    def allocate(self, peer: RawPeer) -> None:
        peer.ask("allocate", data_size_bytes=self.chance.choice((1, 1 << 16)))

    def publish(self, peer: RawPeer) -> None:
        memory = peer.allocate(len(CONTENT))
        os.pwrite(memory.write_fd, CONTENT, 0)
        self.step()
        retention = self.chance.choice((Retention.PERSIST, Retention.OWNER))
        peer.publish(self.name, memory.id, len(CONTENT), replace=True, retention=retention)

    def get(self, peer: RawPeer) -> None:
        peer.get(self.name, self.chance.choice(ATTACHES))

    def remove(self, peer: RawPeer) -> None:
        peer.remove(self.name)

    def leave(self, peer: RawPeer) -> None:
        """Asks for things that nobody will take."""
        for _ in range(self.chance.randrange(1, 20)):
            match self.chance.randrange(6):
                case 0:
                    peer.send("get", name="witness/x", attach=self.chance.choice(ATTACHES))
                case 1:
                    peer.send("get", name="storm/never", attach=Attach.READ, wait=True)
                case 2:
                    peer.send("allocate", data_size_bytes=1)
                case 3:
                    peer.send("wait", name="witness/x", released=True)
                case 4:
                    peer.send("watch", pattern=self.chance.choice(("**", self.name)))
                case 5:
                    peer.send("goodbye", number=0)
        self.step(b"!")
        signal.pause()


def die(path: Path, chance: random.Random) -> None:
    seed, steps = chance.randrange(1 << 32), chance.randrange(MOST_STEPS)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            Life(path, seed, write_end).run()
        finally:
            os._exit(1)
    os.close(write_end)
    while steps > 0:
        signs = os.read(read_end, steps)
        assert signs, "a client ended by itself"
        steps = 0 if b"!" in signs else steps - len(signs)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read_end)


def main() -> None:
    path, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    RawPeer(path).close()  # reads the schema, once for all
    for _ in range(count):
        die(path, chance)
    print(count)


if __name__ == "__main__":
    main()
