# SPDX-License-Identifier: Apache-2.0
"""Many tensors under one name: mappings on their way in, and bundles that were attached.

Below this file bundles are flat. A tensor's key is its path: levels joined by "/", and inside a
level "~1" for "/" and "~0" for "~", as in JSON pointers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from tidl import _core, _pickling, _records
from tidl._arguments import is_utf8, shown
from tidl._errors import ArgumentTypeError, Error, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import jax
    import mxnet
    import numpy.typing
    import paddle
    import tensorflow
    import torch
    import tvm_ffi

    from tidl._tensor import Tensor

#: Longest path of a tensor, in bytes.
KEY_MAX_BYTES = 255

# What is below one level: an index into the bundle's tensors, or the levels of a mapping.
_Tree = dict[str, Any]


def join_key(*levels: str) -> str:
    """The path of a tensor from its keys, level by level, as `Bundle.flat` and `get(keys=)` use."""
    return "/".join(level.replace("~", "~0").replace("/", "~1") for level in levels)


def split_key(path: str) -> tuple[str, ...]:
    """The reverse of `join_key()`."""
    return tuple(level.replace("~1", "/").replace("~0", "~") for level in path.split("/"))


# ---- publishing ----


def draft(
    mapping: Mapping[Any, Any], publishable: Callable[[Any], Any], may_copy: bool
) -> _core.Draft:
    """A mapping for the extension to publish; `may_copy`: from other devices to the host.

    Raises:
        ArgumentTypeError: a key is no string.
        InvalidArgumentError: a key is empty or too long, or the mapping is in itself.
        Error: as `publishable` and the extension say; the message begins with the tensor's path.
    """
    result = _core.draft(may_copy)
    _fill(result, mapping, (), publishable)
    return result


def _fill(
    result: _core.Draft,
    mapping: Mapping[Any, Any],
    levels: tuple[str, ...],
    publishable: Callable[[Any], Any],
) -> None:
    if not mapping and levels:
        result.add_mapping(join_key(*levels))
    for key, value in mapping.items():
        below = (*levels, _checked_level(key, levels))
        path = join_key(*below)
        if len(path) > KEY_MAX_BYTES:
            raise InvalidArgumentError(
                f"the path {shown(path)} is longer than {KEY_MAX_BYTES} bytes: shorten the keys, "
                "and check that no mapping is in itself"
            )
        if isinstance(value, Mapping):
            _fill(result, value, below, publishable)
            continue
        try:
            result.add(path, publishable(value))
        except Error as error:
            raise _named(error, path)  # noqa: B904


def _checked_level(key: object, levels: tuple[str, ...]) -> str:
    where = f"in {join_key(*levels)!r} of the bundle" if levels else "of the bundle"
    if not isinstance(key, str):
        raise ArgumentTypeError(f"keys are strings, and {shown(key)} {where} is none")
    if not key or "\0" in key or not is_utf8(key):
        raise InvalidArgumentError(
            f"the key {shown(key)} {where} is empty, has control characters, or cannot be written "
            "as UTF-8"
        )
    return key


def _named(error: Error, path: str) -> Error:
    """The error with the tensor's path in front of its message."""
    start = f"'{path}': "
    text = str(error)
    if not text.startswith(start):
        error.args = (start + text, *error.args[1:])
    return error


# ---- attached ----


_NO_COPY = "a bundle is not copied by itself; copy what to_numpy() or to_torch() makes of it"


class _State:
    """What a bundle and all its parts share: the lease, and the tensors that were asked for."""

    def __init__(self, core: _core.Bundle, wanted: tuple[str, ...] | None) -> None:
        self.core = core
        self.wanted = wanted
        self.paths = core.keys()
        self.tensors: dict[int, Tensor] = {}
        self.lock = threading.Lock()

    def tensor(self, index: int) -> Tensor:
        """Always the same object for one index."""
        made = self.tensors.get(index)
        if made is None:
            with self.lock:
                made = self.tensors.get(index)
                if made is None:
                    made = self.core.tensor(index)
                    made._member = self.paths[index]
                    self.tensors[index] = made
        return made

    def release(self) -> None:
        with self.lock:
            tensors, self.tensors = self.tensors, {}
            self.core.release()
        for tensor in tensors.values():
            tensor.release()


def _tree(core: _core.Bundle) -> _Tree:
    root: _Tree = {}
    mappings = core.mappings()
    count = 0
    for index, path in enumerate(core.keys()):
        while count < len(mappings) and mappings[count][1] <= index:
            _enter(root, mappings[count][0], {})
            count += 1
        _enter(root, path, index)
    for path, _ in mappings[count:]:
        _enter(root, path, {})
    return root


def _enter(root: _Tree, path: str, item: int | _Tree) -> None:
    if "/" not in path and "~" not in path:  # nearly all
        root[path] = item
        return
    *levels, last = split_key(path)
    for level in levels:
        root = root.setdefault(level, {})
    root[last] = item


def _indexes(tree: _Tree, levels: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    for key, item in tree.items():
        if isinstance(item, dict):
            yield from _indexes(item, (*levels, key))
        else:
            yield join_key(*levels, key), item


class FlatBundle(Mapping[str, "Tensor"]):
    """The tensors of a bundle by their paths. Made by `Bundle.flat`."""

    __slots__ = ("_positions", "_state")

    def __init__(self, state: _State, positions: dict[str, int]) -> None:
        """Use `Bundle.flat`."""
        self._state = state
        self._positions = positions

    def __getitem__(self, path: str) -> Tensor:
        return self._state.tensor(self._positions[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, path: object) -> bool:
        return path in self._positions

    def __repr__(self) -> str:
        return f"<tidl.FlatBundle of {len(self)} tensors>"


class Bundle(Mapping[str, "Tensor | Bundle"]):
    """Many tensors under one name, from `Client.get()`: a read-only, nested mapping.

    It has the order and the nesting of what was published; what is below a key is a `Tensor` or
    another `Bundle`. Those are made when they are asked for, and are the same object each time.
    Tensors that shared memory when they were published share it here.

    One lease stands for all of it. It ends when the bundle, its tensors and everything made from
    them are gone, or with `release()`.
    """

    __slots__ = ("__weakref__", "_levels", "_state", "_tree")

    def __init__(
        self,
        core: _core.Bundle,
        wanted: tuple[str, ...] | None = None,
        *,
        _part: tuple[_State, _Tree, tuple[str, ...]] | None = None,
    ) -> None:
        """Use `Client.get()`."""
        self._state, self._tree, self._levels = _part or (_State(core, wanted), _tree(core), ())

    # ---- mapping ----

    def __getitem__(self, key: str) -> Tensor | Bundle:
        item = self._tree[key]
        if isinstance(item, dict):
            return Bundle(self._state.core, _part=(self._state, item, (*self._levels, key)))
        return self._state.tensor(item)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tree)

    def __len__(self) -> int:
        return len(self._tree)

    def __contains__(self, key: object) -> bool:
        return key in self._tree

    @property
    def flat(self) -> FlatBundle:
        """All tensors by their paths, however deep they are: `{"encoder/weight": ...}`.

        Inside a level "~1" stands for "/" and "~0" for "~": see `tidl.join_key()`.
        """
        return FlatBundle(self._state, dict(_indexes(self._tree)))

    # ---- what all have in common ----

    @property
    def name(self) -> str:
        """Path in its owner's namespace."""
        return self._state.core.name

    @property
    def generation(self) -> int:
        """The generation that was attached."""
        return self._state.core.generation

    @property
    def access(self) -> str:
        """How it was attached: "read", "write" or "copy_on_write"."""
        return self._state.core.access

    @property
    def readonly(self) -> bool:
        """Whether it is mapped for reading only."""
        return self.access == "read"

    @property
    def owner(self) -> int:
        """The uid of its owner."""
        return self._state.core.owner

    @property
    def device(self) -> str:
        """Where the memory is: "cpu"."""
        return "cpu"

    @property
    def metadata(self) -> dict[str, Any] | None:
        """What the publisher attached, a new dict each time, or None."""
        return _records.parse_metadata(self._state.core.metadata_json)

    @property
    def nbytes(self) -> int:
        """Elements times element size, of all tensors that were attached under the name."""
        return self._state.core.nbytes

    @property
    def segment_count(self) -> int:
        """Pieces of memory that are mapped for it."""
        return self._state.core.segment_count

    # ---- life ----

    @property
    def released(self) -> bool:
        """Whether `release()` was called."""
        return self._state.core.released

    def release(self) -> None:
        """Lets go of all tensors, those of other parts of the same bundle included.

        Using the bundle or a tensor out of it afterwards raises `ReleasedError`. Arrays and tensors
        of frameworks made from them stay valid; the memory is unmapped with the last of them.
        Calling it again does nothing.
        """
        self._state.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self.released:
            return "<tidl.Bundle released>"
        return (
            f"<tidl.Bundle {self.name!r}: {len(self)} keys, access {self.access}, "
            f"generation {self.generation}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """By name: whoever unpickles it attaches the same memory, with the same access.

        Of a part, such as `bundle["encoder"]`, the other side attaches only what is in it.
        """
        return _pickling.reduce_bundle(self)

    def _wanted_below(self) -> tuple[str, ...] | None:
        """What `get(keys=)` takes for the same part of the same bundle."""
        wanted = self._state.wanted
        if not self._levels:
            return wanted
        path = join_key(*self._levels)
        if wanted is None or any(f"{path}/".startswith(f"{key}/") for key in wanted):
            return (path,)
        return tuple(key for key in wanted if key.startswith(f"{path}/"))

    def __copy__(self) -> Never:
        raise UnsupportedError(_NO_COPY)

    def __deepcopy__(self, memo: object) -> Never:
        raise UnsupportedError(_NO_COPY)

    # ---- frameworks ----

    def _convert(self, tree: _Tree, convert: Callable[[Tensor], Any]) -> dict[str, Any]:
        """The same nesting of what `convert` makes; one object for tensors that are the same."""
        return _Conversion(self._state, convert).convert(tree, ())

    def to_numpy(self, *, readonly_ok: bool = False) -> dict[str, numpy.typing.NDArray[Any]]:
        """All tensors as NumPy arrays over the same memory, in nested dicts.

        Tied tensors (the same memory, shape, strides and data type) become one array. Errors are
        those of `Tensor.to_numpy()`, with the tensor's path in front.
        """
        return self._convert(self._tree, lambda tensor: tensor.to_numpy(readonly_ok=readonly_ok))

    def to_torch(self, *, readonly_ok: bool = False) -> dict[str, torch.Tensor]:
        """As `to_numpy()`, for torch: see `Tensor.to_torch()`.

        `module.load_state_dict(bundle.to_torch(), assign=True)` takes the shared memory itself for
        the module's parameters; without `assign=True` torch copies it into those that are there.
        """
        return self._convert(self._tree, lambda tensor: tensor.to_torch(readonly_ok=readonly_ok))

    def to_paddle(self, *, readonly_ok: bool = False) -> dict[str, paddle.Tensor]:
        """As `to_numpy()`, for Paddle: see `Tensor.to_paddle()`.

        Paddle's own `layer.set_state_dict()` copies. Paddle cannot import one address twice, so
        views of one address with different shapes are refused.
        """
        return self._convert(self._tree, lambda tensor: tensor.to_paddle(readonly_ok=readonly_ok))

    def to_taichi(self, *, readonly_ok: bool = False) -> dict[str, numpy.typing.NDArray[Any]]:
        """As `to_numpy()`, for Taichi's kernels: see `Tensor.to_taichi()`."""
        return self._convert(self._tree, lambda tensor: tensor.to_taichi(readonly_ok=readonly_ok))

    def to_jax(self, *, readonly_ok: bool = False) -> dict[str, jax.Array]:
        """As `to_numpy()`, for JAX: see `Tensor.to_jax()`."""
        return self._convert(self._tree, lambda tensor: tensor.to_jax(readonly_ok=readonly_ok))

    def to_tensorflow(self, *, readonly_ok: bool = False) -> dict[str, tensorflow.Tensor]:
        """As `to_numpy()`, for TensorFlow: see `Tensor.to_tensorflow()`."""
        return self._convert(
            self._tree, lambda tensor: tensor.to_tensorflow(readonly_ok=readonly_ok)
        )

    def to_cupy(self, *, readonly_ok: bool = False) -> Never:
        """Raises: see `Tensor.to_cupy()`."""
        self._convert(self._tree, lambda tensor: tensor.to_cupy(readonly_ok=readonly_ok))
        raise UnsupportedError("CuPy takes a GPU's memory only, and this bundle has none")

    def to_mxnet(self, *, readonly_ok: bool = False) -> dict[str, mxnet.nd.NDArray]:
        """As `to_numpy()`, for MXNet: see `Tensor.to_mxnet()`."""
        return self._convert(self._tree, lambda tensor: tensor.to_mxnet(readonly_ok=readonly_ok))

    def to_tvm(self, *, readonly_ok: bool = False) -> dict[str, tvm_ffi.Tensor]:
        """As `to_numpy()`, for TVM: see `Tensor.to_tvm()`."""
        return self._convert(self._tree, lambda tensor: tensor.to_tvm(readonly_ok=readonly_ok))


class _Conversion:
    """One walk through a bundle, for one framework."""

    def __init__(self, state: _State, convert: Callable[[Tensor], Any]) -> None:
        self._state = state
        self._convert = convert
        self._made: dict[tuple[Any, ...], Any] = {}

    def convert(self, tree: _Tree, levels: tuple[str, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, item in tree.items():
            below = (*levels, key)
            if isinstance(item, dict):
                result[key] = self.convert(item, below)
                continue
            try:
                result[key] = self._once(self._state.tensor(item))
            except Error as error:
                raise _named(error, join_key(*below))  # noqa: B904
        return result

    def _once(self, tensor: Tensor) -> Any:
        address = tensor._address
        if address is None:
            return self._convert(tensor)
        identity = (address, tensor.shape, tensor.strides, tensor.dtype)
        if identity not in self._made:
            self._made[identity] = self._convert(tensor)
        return self._made[identity]
