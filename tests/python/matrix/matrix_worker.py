# SPDX-License-Identifier: Apache-2.0
"""One framework in a process of its own, on both ends of exchanges. Runs in a `Peer`.

Answers are made of tuples, numbers, text and bytes, for they travel as literals.
"""

from __future__ import annotations

import gc
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from matrix_cases import CASES, Case, content, one, view_of
from matrix_frameworks import FRAMEWORKS, Framework

import tidl

Place = tuple[int, int]
Answer = tuple[Any, ...]


@dataclass
class Held:
    """A tensor of this framework, and the bytes that it views where this process made them."""

    obj: Any
    memory: np.ndarray | None = None


def places(addresses: list[int]) -> list[Place]:
    """The memfd's inode and the offset in it of each address; (0, 0) where none is mapped."""
    found = [(0, 0)] * len(addresses)
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "/memfd:" not in line:
                continue
            span, _, offset, _, inode, *_ = line.split(maxsplit=5)
            start, end = (int(word, 16) for word in span.split("-"))
            for index, address in enumerate(addresses):
                if start <= address < end:
                    found[index] = (int(inode), address - start + int(offset, 16))
    return found


def reason(error: Exception) -> str:
    """What the error says, without addresses, traces and paths of a framework's sources."""
    if isinstance(error, tidl.Error):
        return str(error)
    text = str(error).strip().partition("\n")[0]
    text = re.sub(r"^/\S+ .*(?:was false\. |\) )", "", text)
    return f"{type(error).__name__}: {text}"


class Worker:
    def __init__(self, framework: str) -> None:
        warnings.simplefilter("ignore")
        self.framework: Framework = FRAMEWORKS[framework]()
        self.client = tidl.connect()
        self.held: dict[str, Held] = {}
        # What the imports made stays: collecting need not look at it each time.
        gc.collect()
        gc.freeze()

    def version(self) -> str:
        return self.framework.version()

    # ---- publisher ----

    def publish_cases(self, prefix: str) -> list[Answer]:
        """Publishes each case as a tensor of this framework.

        Answers ("published", copied, place) or ("refused", kind, code, reason) for each.
        """
        return [self._publish(case, f"{prefix}/{number}") for number, case in enumerate(CASES)]

    def _publish(self, case: Case, name: str) -> Answer:
        whole = self.client.empty(case.shape, dtype=case.dtype)
        memory = self._bytes_of(whole)
        memory[:] = np.frombuffer(content(case), np.uint8)
        try:
            obj = self.framework.take(self._viewed(case, whole, name))
        except Exception as error:
            return self._refusal(error)
        publication = self.client.publish(name, obj)
        self.held[name] = Held(obj, memory)
        [place] = places([self.framework.address(obj)])
        return ("published", publication.copied, place)

    def _viewed(self, case: Case, whole: tidl.Tensor, name: str) -> tidl.Tensor:
        """The case's view as a tensor of tidl: NumPy makes it, of elements that it has."""
        if case.view == "whole":
            return whole
        view = view_of(case, self._bytes_of(whole)).view("float32")
        self.client.publish(name, view)
        tensor = self.client.get(name, access="write")
        self.client.remove(name)
        return tensor

    def _bytes_of(self, tensor: tidl.Tensor) -> np.ndarray:
        if not tensor.nbytes:
            return np.empty(0, np.uint8)

        class Memory:
            __array_interface__ = {  # noqa: RUF012
                "version": 3,
                "data": (tensor._address, False),
                "typestr": "|u1",
                "shape": (tensor.nbytes,),
            }
            keeper = tensor

        return np.asarray(Memory())

    def publish_own(self, name: str) -> Answer:
        """Publishes a tensor in the framework's own memory."""
        obj = self.framework.own(np.arange(12, dtype="float32").reshape(3, 4))
        publication = self.client.publish(name, obj, replace=True)
        return (publication.copied, publication.reason)

    def publish_plain(self, name: str) -> Place:
        """Publishes a float32 tensor without any view."""
        self.held.pop(name, None)
        case = next(case for case in CASES if case.label == "float32")
        answer = self._publish(case, name)
        place: Place = answer[2]
        return place

    def check_and_restore(self, prefix: str, written: list[int]) -> list[bytes]:
        """What this framework reads in the cases that others wrote to; then makes them new."""
        read = []
        for number in written:
            held = self.held[f"{prefix}/{number}"]
            read.append(self.framework.read(held.obj))
            assert held.memory is not None
            held.memory[:] = np.frombuffer(content(CASES[number]), np.uint8)
        return read

    # ---- consumer ----

    def take_cases(self, prefix: str, numbers: list[int]) -> list[Answer]:
        """Attaches each case, to write to it.

        Answers ("taken", place, values) or ("refused", kind, code, reason) for each.
        """
        answers: list[Answer] = []
        for number in numbers:
            answers.append(self._take(f"{prefix}/{number}"))
        found = places([answer[1] if answer[0] == "taken" else 0 for answer in answers])
        return [
            ("taken", place, answer[2]) if answer[0] == "taken" else answer
            for answer, place in zip(answers, found, strict=True)
        ]

    def _take(self, name: str) -> Answer:
        tensor = self.client.get(name, access="write", timeout=30)
        try:
            obj = self.framework.take(tensor)
        except Exception as error:
            return self._refusal(error)
        self.held[name] = Held(obj)
        return ("taken", self.framework.address(obj), self.framework.read(obj))

    def write_cases(self, prefix: str, numbers: list[int]) -> list[int]:
        """Fills with ones what this framework can write to. Answers which those are."""
        written = []
        if not self.framework.can_write:
            return written
        for number in numbers:
            case = CASES[number]
            held = self.held.get(f"{prefix}/{number}")
            if held and not {case.dtype, case.label} & self.framework.unwritten:
                self.framework.fill(held.obj)
                written.append(number)
        return written

    def take_readonly(self, name: str) -> tuple[Answer, Answer]:
        """Attaches for reading: without saying anything, and with `readonly_ok=True`."""
        answers = []
        for options in ({}, {"readonly_ok": True}):
            tensor = self.client.get(name, timeout=30)
            try:
                obj = self.framework.take(tensor, **options)
            except Exception as error:
                answers.append(self._refusal(error))
                continue
            [place] = places([self.framework.address(obj)])
            answers.append(("taken", place, self.framework.read(obj)))
            del obj
        return answers[0], answers[1]

    def take_one(self, name: str) -> bytes:
        """Attaches one tensor and keeps it."""
        obj = self.framework.take(self.client.get(name, access="write", timeout=30))
        self.held[name] = Held(obj)
        return self.framework.read(obj)

    # ---- both ----

    def read(self, name: str) -> bytes:
        return self.framework.read(self.held[name].obj)

    def drop(self, prefix: str) -> None:
        """Lets go of everything under a name."""
        for name in [name for name in self.held if f"{name}/".startswith(f"{prefix}/")]:
            del self.held[name]
        gc.collect()
        self.client.dispatch()

    def _refusal(self, error: Exception) -> Answer:
        code = str(getattr(error, "code", ""))
        return ("refused", type(error).__name__, code, reason(error))


def ones(number: int) -> bytes:
    """What a case reads as once it is filled with ones."""
    case = CASES[number]
    size = view_of(case, np.frombuffer(content(case), np.uint8)).size
    return one(case.dtype) * size
