# SPDX-License-Identifier: Apache-2.0
"""The compatibility pair: any tensor as a capsule, any capsule or tensor as an object of today.

Frameworks know different parts of DLPack: some take capsules only and some objects only, some ask
with words that others do not know. Whatever goes through this pair speaks all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidl import _capsule, _sources
from tidl._errors import (
    ArgumentTypeError,
    CopyNeededError,
    DeviceError,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from typing_extensions import CapsuleType


def to_dlpack(obj: Any, *, max_version: tuple[int, int] | None = None) -> CapsuleType:
    """Any framework's tensor as a DLPack capsule, for one consumer to take. Nothing is copied.

    Args:
        obj: a `Tensor`, or a tensor of any framework: with `__dlpack__`, or of MXNet, a
            TensorFlow variable, a NumPy-like array.
        max_version: None makes a capsule of the old kind, which every `from_dlpack` that takes
            capsules knows. (1, 0) or more allows the new kind, which can say "read-only".

    Raises:
        ReadOnlyError: a `Tensor` attached for reading, which the old kind cannot say.
        BufferError, or what else the framework raises: it cannot hand out this tensor.
        ArgumentTypeError: it is no tensor.
    """
    return ForeignTensor(obj).__dlpack__(max_version=max_version)


def from_dlpack(obj: Any) -> ForeignTensor:
    """Any capsule or tensor as an object that every framework's `from_dlpack` understands.

    For instance an MXNet array for JAX, which takes no capsules:

        jax.dlpack.from_dlpack(tidl.from_dlpack(array.to_dlpack_for_read()))

    Args:
        obj: an unused capsule of either kind, or a tensor as for `to_dlpack()`.

    Raises:
        InvalidArgumentError: the capsule was used already, or holds no tensor.
        ArgumentTypeError: it is no tensor.
    """
    return ForeignTensor(obj)


class ForeignTensor:
    """Somebody's tensor in this process, speaking DLPack as it is today.

    It shares the memory of what it was made from. Made from a capsule it can be taken once, else
    any number of times. `Client.publish()` takes it, too.
    """

    def __init__(self, obj: Any) -> None:
        """Use `tidl.from_dlpack()`."""
        self._obj = obj
        source = self._source()
        if _capsule.is_capsule(source):
            _capsule.is_versioned(source)  # refuses those that hold no tensor
        elif not hasattr(source, "__dlpack__"):
            raise ArgumentTypeError(
                f"{type(obj).__name__} is no tensor: pass an object with __dlpack__, or a DLPack "
                "capsule"
            )

    def __repr__(self) -> str:
        return f"<tidl.ForeignTensor of {type(self._obj).__name__}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        source = self._source()
        if _capsule.is_capsule(source):
            return _capsule.device(source)
        kind, number = source.__dlpack_device__()
        return int(kind), int(number or 0)  # Paddle says None

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        if dl_device is not None and tuple(dl_device) == self.__dlpack_device__():
            dl_device = None  # asks for nothing, and TensorFlow refuses the very word
        source = self._source()
        if _capsule.is_capsule(source):
            capsule = _as_it_is(source, dl_device, copy)
        else:
            words = {"stream": stream, "dl_device": dl_device, "copy": copy}
            capsule = _export(source, max_version, words)
        _require_kind(capsule, max_version)
        return capsule

    def _source(self) -> Any:
        """What is asked: a capsule each time anew where the framework knows no other way."""
        return _sources.publishable(self._obj)


def _as_it_is(capsule: CapsuleType, dl_device: Any, copy: bool | None) -> CapsuleType:
    if copy:
        raise CopyNeededError("a capsule cannot be copied; take it and copy the result")
    if dl_device is not None:
        raise DeviceError(f"a capsule stays on its device and cannot go to {dl_device}")
    return capsule


def _export(source: Any, max_version: Any, words: dict[str, Any]) -> CapsuleType:
    """Asks with as few words as will do, since old producers know none."""
    words = {word: value for word, value in words.items() if value is not None}
    capsule: CapsuleType
    if max_version is not None:
        try:
            capsule = source.__dlpack__(max_version=max_version, **words)
            return capsule
        except RecursionError:
            raise  # asking again would double the work at every level
        except (TypeError, AttributeError, RuntimeError):
            pass  # does not know the word; if it is something else, it will say so again
    if words.get("copy") is False:
        del words["copy"]  # who does not know the word does not copy
    capsule = source.__dlpack__(**words)
    return capsule


def _require_kind(capsule: CapsuleType, max_version: tuple[int, int] | None) -> None:
    if not _capsule.is_capsule(capsule):
        raise InvalidArgumentError("the object's __dlpack__ did not return a capsule")
    is_old_wanted = max_version is None or max_version[0] < 1
    if _capsule.is_versioned(capsule) and is_old_wanted:
        raise InvalidArgumentError(
            "the capsule is of the new kind and its consumer knows the old one only; make an old "
            "one, with tidl.to_dlpack() or __dlpack__() without max_version"
        )
