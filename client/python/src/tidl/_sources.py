# SPDX-License-Identifier: Apache-2.0
"""What can be published: objects that the extension cannot judge by DLPack alone.

Frameworks are known by the name of the module that defines the object's class or one of its bases,
so that none is imported, and nothing is asked of objects that need no care.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from tidl import _bundle, _capsule
from tidl._errors import DtypeError, InvalidArgumentError, LayoutError

Reader = Callable[[Any], Any]

# By class, which is asked once.
_known_readers: weakref.WeakKeyDictionary[type[Any], Reader] = weakref.WeakKeyDictionary()
_known_detachers: weakref.WeakKeyDictionary[type[Any], Reader] = weakref.WeakKeyDictionary()


def publishable(obj: Any, may_copy: bool = False) -> Any:
    """The object to hand to the extension for `obj`, or an error that says why there is none.

    Args:
        obj: a tensor, or a mapping of tensors.
        may_copy: whether those in a mapping may be copied from other devices to the host.

    Raises:
        Error: something in a mapping, which the message names.
        LayoutError: a torch tensor whose negation is still pending.
        DtypeError: elements that are no numbers, such as text or keys.
        InvalidArgumentError: a tensor without memory of its own: symbolic, sparse or deleted.
    """
    kind = type(obj)
    reader = _known_readers.get(kind)
    if reader is None:
        reader = _known_readers[kind] = _reader_of(kind)
    return _bundle.draft(obj, member, may_copy) if reader is _as_draft else reader(obj)


def member(obj: Any) -> Any:
    """The same for a tensor in a mapping. State dicts hold parameters: their values are meant."""
    kind = type(obj)
    detach = _known_detachers.get(kind)
    if detach is None:
        detach = _known_detachers[kind] = _detacher_of(kind)
    return publishable(detach(obj))


def _detacher_of(kind: type[Any]) -> Reader:
    for base in kind.__mro__:
        detach = _DETACHERS.get(base.__module__.partition(".")[0])
        if detach:
            return detach
    return _as_it_is


def _reader_of(kind: type[Any]) -> Reader:
    """What makes objects of a class publishable."""
    if issubclass(kind, Mapping):
        return _as_draft
    for base in kind.__mro__:
        reader = _READERS.get(base.__module__.partition(".")[0])
        if reader:
            return reader
    if not hasattr(kind, "__dlpack__") and hasattr(kind, "__array_interface__"):
        return _through_numpy
    return _as_it_is


def _as_it_is(obj: Any) -> Any:
    return obj


def _as_draft(obj: Any) -> Any:
    """Stands for mappings among the readers; they need more than the object."""
    return _bundle.draft(obj, member, False)


def _through_numpy(obj: Any) -> Any:
    """Objects with nothing but NumPy's interface: NumPy reads it, where there is NumPy."""
    try:
        import numpy
    except ImportError:
        return obj
    return numpy.asarray(obj)


def _detach_torch(obj: Any) -> Any:
    is_tensor = isinstance(obj, sys.modules["torch"].Tensor)
    return obj.detach() if is_tensor and obj.requires_grad else obj


def _detach_paddle(obj: Any) -> Any:
    is_tensor = isinstance(obj, sys.modules["paddle"].Tensor)
    return obj.detach() if is_tensor and not obj.stop_gradient else obj


def _from_torch(obj: Any) -> Any:
    # torch exports such views with the wrong sign, without an error.
    if isinstance(obj, sys.modules["torch"].Tensor) and obj.is_neg():
        raise LayoutError("the torch tensor has its negation pending; call .resolve_neg() first")
    return obj


def _from_jax(obj: Any) -> Any:
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(obj, jax.Array) or isinstance(obj, jax.core.Tracer):
        return obj  # of a tracer JAX itself says what it is, and where
    if jax.dtypes.issubdtype(obj.dtype, jax.dtypes.prng_key):
        raise DtypeError("JAX's random keys are no numbers; publish jax.random.key_data(key)")
    if obj.is_deleted():
        raise InvalidArgumentError(
            "the JAX array was deleted or given away (donate_argnums); publish it before that"
        )
    return obj


# Their memory holds pointers; TensorFlow aborts the process when asked to export it.
_TENSORFLOW_OPAQUE = ("string", "resource", "variant")


def _from_tensorflow(obj: Any) -> Any:
    tensorflow = sys.modules["tensorflow"]
    if isinstance(obj, tensorflow.Variable):
        # Variables have no DLPack; the value is a tensor over the same memory.
        obj = obj.value()
    if isinstance(obj, tensorflow.Tensor):
        if not hasattr(obj, "__dlpack__"):
            raise InvalidArgumentError(
                "a symbolic TensorFlow tensor has no memory; publish what the tf.function returns"
            )
        if obj.dtype.name in _TENSORFLOW_OPAQUE:
            raise DtypeError(
                f"TensorFlow's {obj.dtype.name} tensors are no numbers and cannot be shared"
            )
    elif hasattr(obj, "values"):  # sparse, ragged, sliced
        raise InvalidArgumentError(
            f"{type(obj).__name__} is made of several tensors; publish .values and the others one "
            "by one"
        )
    return obj


def _from_mxnet(obj: Any) -> Any:
    if not hasattr(obj, "to_dlpack_for_read"):
        return obj
    if obj.stype != "default":
        raise InvalidArgumentError(
            f'a sparse MXNet array ({obj.stype}) is made of several; call .tostype("default") first'
        )
    capsule = obj.to_dlpack_for_read()  # waits for what is still being computed
    if getattr(obj.dtype, "__name__", "") in ("bool", "bool_"):
        _capsule.retype(capsule, _capsule.BOOL)
    return capsule


def _from_taichi(obj: Any) -> Any:
    from tidl.taichi import to_dlpack

    return to_dlpack(obj)


_READERS: Mapping[str, Reader] = {
    "torch": _from_torch,
    "jax": _from_jax,
    "jaxlib": _from_jax,
    "tensorflow": _from_tensorflow,
    "mxnet": _from_mxnet,
    "taichi": _from_taichi,
    "quadrants": _from_taichi,
    "gstaichi": _from_taichi,
}

_DETACHERS: Mapping[str, Reader] = {"torch": _detach_torch, "paddle": _detach_paddle}
