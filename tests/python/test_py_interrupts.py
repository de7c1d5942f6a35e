# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at each moment of what has a beginning and an end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from python_brokers import broker_pids

import tidl


def is_interrupted_at(moment: int, action: Callable[[], object]) -> bool:
    """Runs it with a Ctrl-C at its n-th line of Python in tidl; False: it has fewer."""
    left = moment

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if f"{os.sep}tidl{os.sep}" not in frame.f_code.co_filename:
            return None
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_ctrl_c_leaves_no_update_open(client: tidl.Client) -> None:
    tensor = client.zeros(1)

    def update() -> None:
        with tensor.update():
            pass

    moment = 0
    while is_interrupted_at(moment, update):
        moment += 1
        with tensor.update() as step:
            assert step == tensor.step + 1
    assert moment > 0


def test_ctrl_c_never_ends_the_turns(client: tidl.Client) -> None:
    tensor = client.zeros(1)
    turns = tensor.turns(0, 1)

    def take() -> None:
        with turns.take(timeout=0):
            pass

    moment = 0
    while is_interrupted_at(moment, take):
        moment += 1
        step = tensor.step
        with turns.take(timeout=0) as turn:
            assert turn == step
        assert tensor.step == step + 1
    assert moment > 0


def test_ctrl_c_twice_ends_a_wait_at_once(own_runtime: Path) -> None:
    """After the first one a wait goes on for the answer of the broker, which stands still."""
    count = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal count
        if frame and frame.f_code is tidl.Client.get.__code__:
            count += 1
            raise KeyboardInterrupt

    with tidl.connect() as client:
        (broker,) = broker_pids(own_runtime)
        before = signal.signal(signal.SIGALRM, handler)
        os.kill(broker, signal.SIGSTOP)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            with pytest.raises(KeyboardInterrupt):
                client.get("never", timeout=None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            os.kill(broker, signal.SIGCONT)
        assert count == 1
