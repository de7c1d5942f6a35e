# SPDX-License-Identifier: Apache-2.0
"""Fields over attached tensors: a tree is laid out as the tensor is, and then given its memory."""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidl import _core
from tidl._errors import (
    ArgumentTypeError,
    DtypeError,
    InvalidArgumentError,
    LayoutError,
)
from tidl.adapters._common import load, writable
from tidl.adapters.numpy import to_numpy
from tidl.taichi import _family, _holds, _kernels, _plan, _snodes

if TYPE_CHECKING:
    import numpy.typing

    from tidl._tensor import Tensor

_WORDS = {
    "bool": "u1",
    **{
        f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
}

PAGE_BYTES = mmap.PAGESIZE


def attach_field(
    tensor: Tensor,
    *,
    element_ndim: int = 0,
    offset: int | Sequence[int] | None = None,
    needs_grad: bool = False,
    readonly_ok: bool = False,
    framework: Any = "taichi",
) -> Any:
    """A field that is a tensor of another process: kernels loop over it, and all sides see writes.

        y = client.get("canvas", access="write")
        canvas = tidl.taichi.attach_field(y)

        @ti.kernel
        def paint():
            for i, j in canvas:
                canvas[i, j] = 0.5

    Nothing is copied. The field is laid out as the tensor is, whatever the order of its axes and
    the gaps between its rows. It stays, and so does the lease on the tensor, until
    `detach_field()`, `ti.reset()` or another `ti.init()`, also when the tensor is released, its
    name is removed or its producer ends.

    Args:
        tensor: from `client.get()` or `client.empty()`. One that is immutable is mapped
            copy-on-write: what kernels write stays the field's own.
        element_ndim: how many of the last axes make the elements: 0 for numbers, 1 for vectors,
            2 for matrices.
        offset: index of the first element, if it is not 0.
        needs_grad: give it a gradient, in memory of Taichi's own.
        readonly_ok: accept a tensor attached for reading. Taichi does not know what that is: a
            kernel that writes to the field ends the process (SIGSEGV).
        framework: whose field: `taichi`, or a fork of it (`quadrants`, `gstaichi`), the package or
            its name. It is initialised.

    Raises:
        LayoutError: an axis has a negative or zero stride, elements overlap, the memory is not
            aligned to them, or there are more than 12 dimensions.
        ReadOnlyError: it is attached for reading, not immutable, and `readonly_ok` was not given.
        DtypeError: Taichi has no such data type, or no gradients of it.
        AccessError: this process's own tensor, published as live: attach the field before that.
        ReleasedError: the tensor was released, or inherited by `os.fork()`.
        InvalidArgumentError: no elements, no such `element_ndim` or `offset`, or the package is
            not initialised.
        DeviceError, UnsupportedError: the package does not run on the CPU.
        ArgumentTypeError: no `tidl.Tensor`.
    """
    family = _family.name_of(framework)
    package = load(family, family)
    if not isinstance(tensor, _core.Tensor):
        raise ArgumentTypeError(
            f"{type(tensor).__name__} is no tensor of tidl: publish it, and attach what "
            "client.get() gives"
        )
    spec = _spec(package, tensor, element_ndim, offset, needs_grad)
    shown = writable(tensor, "Taichi", readonly_ok)
    _family.settle(family)
    field, tree = _build(package, spec)
    try:
        _show(family, field, spec, shown)
    except BaseException:
        tree.destroy()
        raise
    # Arrays hold references of their own: the user may release the tensor.
    array = to_numpy(shown)
    _holds.of(family)[tree.id] = Attached(
        tree.ptr, weakref.ref(field), array, shown.access == "copy_on_write"
    )
    return field


def detach_field(field: Any) -> None:
    """Ends a field of `attach_field()`: its memory is unmapped here, and the lease given back.

    Kernels that use the field must not be called any more: Taichi ends the process then. All
    others are compiled anew.

    Raises:
        InvalidArgumentError: it is none, or was detached already.
    """
    family = _family.family_of(field)
    holds = {} if family is None or _family.current_runtime(family) is None else _holds.of(family)
    # By identity: of a field that was detached, Taichi must not be asked anything.
    mine = [
        (number, hold)
        for number, hold in holds.items()
        if isinstance(hold, Attached) and hold.field() is field
    ]
    if family is None or not mine:
        raise InvalidArgumentError("this is no field of attach_field(), or no longer")
    number, hold = mine[0]
    _family.settle(family)
    _family.part(family, "_snode.snode_tree").SNodeTree(hold.tree).destroy()
    _kernels.forget_launches(family)
    del holds[number]


def attached_array(family: str, field: Any) -> numpy.typing.NDArray[Any] | None:
    """The memory of an attached field as this process has it mapped besides; None for others.

    Unlike the field's own map it outlives the tree. Where pages are private to the field, there is
    none.
    """
    number = _snodes.tree_of(field)
    hold = None if number is None else _holds.of(family).get(number)
    if isinstance(hold, Attached) and hold.field() is field and not hold.is_private:
        return hold.array
    return None


@dataclass(frozen=True)
class Attached:
    """What an attached field has. No Python object of the program's, which would keep that."""

    tree: Any
    field: weakref.ref[Any]
    #: over the tensor, which it keeps
    array: numpy.typing.NDArray[Any]
    #: the field's pages are its own, once written
    is_private: bool


@dataclass(frozen=True)
class _Spec:
    """A field to be made."""

    plan: _plan.Plan
    dtype: Any
    itemsize: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    #: extents of an element
    element: tuple[int, ...]
    #: of the first element in its page
    lead_bytes: int
    #: from there to behind the last
    span_bytes: int
    offset: tuple[int, ...] | None
    needs_grad: bool

    @property
    def index_ndim(self) -> int:
        return len(self.shape) - len(self.element)


def _spec(
    package: Any,
    tensor: Tensor,
    element_ndim: int,
    offset: int | Sequence[int] | None,
    needs_grad: bool,
) -> _Spec:
    shape, strides = tensor.shape, tensor.strides
    if element_ndim not in range(3) or element_ndim > len(shape):
        raise InvalidArgumentError(
            f"element_ndim is 0, 1 or 2 and no more than the tensor's {len(shape)} dimensions, not "
            f"{element_ndim!r}"
        )
    if 0 in shape:
        raise InvalidArgumentError("the tensor has no elements, and Taichi has no empty fields")
    word = _WORDS.get(tensor.dtype)
    if word is None or not hasattr(package, word):
        raise DtypeError(f"Taichi has no {tensor.dtype}; convert the tensor first")
    if needs_grad and not word.startswith("f"):
        raise DtypeError(f"gradients need floating point, and the tensor is {tensor.dtype}")
    plan = _plan.plan(shape, strides, element_ndim)
    address, itemsize = tensor._address or 0, tensor.nbytes // _count(shape)
    if address % itemsize:
        raise LayoutError(f"the tensor is not aligned to its elements of {itemsize} bytes: copy it")
    reach = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    split = len(shape) - element_ndim
    return _Spec(
        plan=plan,
        dtype=getattr(package, word),
        itemsize=itemsize,
        shape=shape,
        strides_bytes=tuple(step * itemsize for step in strides),
        element=shape[split:],
        lead_bytes=address % PAGE_BYTES,
        span_bytes=(reach + 1) * itemsize,
        offset=_offset(offset, split),
        needs_grad=needs_grad,
    )


def _count(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _offset(offset: int | Sequence[int] | None, ndim: int) -> tuple[int, ...] | None:
    if offset is None:
        return None
    numbers = (offset,) if isinstance(offset, int) else tuple(offset)
    if len(numbers) != ndim or not all(isinstance(number, int) for number in numbers) or not ndim:
        raise InvalidArgumentError(
            f"offset is one integer for each of the {ndim} axes, not {offset!r}"
        )
    return numbers


# ---- the tree ----


def _build(package: Any, spec: _Spec) -> tuple[Any, Any]:
    """The field, laid out over zeroed memory of Taichi's own, and its tree."""
    builder = package.FieldsBuilder()
    if spec.lead_bytes:
        _pad(package, builder, package.u8, spec.lead_bytes)
    field = _new_field(package, spec)
    _place(package, builder, field, spec)
    gradients = None
    if spec.needs_grad:
        gradients = package.FieldsBuilder()
        axes = range(spec.index_ndim)
        extents = spec.shape[: spec.index_ndim]
        parent = gradients.dense(package.axes(*axes), extents) if axes else gradients
        _place_in(parent, field.grad, spec)
    tree = builder.finalize()
    if gradients is not None:
        gradients.finalize()
    return field, tree


def _new_field(package: Any, spec: _Spec) -> Any:
    if not spec.element:
        return package.field(spec.dtype, needs_grad=spec.needs_grad)
    kind = package.Vector if len(spec.element) == 1 else package.Matrix
    return kind.field(*spec.element, spec.dtype, needs_grad=spec.needs_grad)


def _place(package: Any, builder: Any, field: Any, spec: _Spec) -> None:
    if spec.plan.plane_pad is None:
        _place_in(_chain(package, builder, spec), field, spec)
        return
    for number in range(spec.plan.components):
        index = divmod(number, spec.element[1]) if len(spec.element) == 2 else (number,)
        _place_in(_chain(package, builder, spec), field.get_scalar_field(*index), spec)
        if spec.plan.plane_pad and number + 1 < spec.plan.components:
            _pad(package, builder, spec.dtype, spec.plan.plane_pad)


def _chain(package: Any, builder: Any, spec: _Spec) -> Any:
    """The innermost cell of dense SNodes. Cells are filled in order: what they pad comes last."""
    parent, paddings = builder, []
    for level in spec.plan.levels:
        parent = parent.dense(package.axes(*level.axes), level.counts)
        paddings.append((parent, level.pad))
    return _Cell(package, parent, paddings, spec)


class _Cell:
    """An innermost cell, whose padding and that of all around it follows what is placed in it."""

    def __init__(
        self, package: Any, snode: Any, paddings: list[tuple[Any, int]], spec: _Spec
    ) -> None:
        self._package = package
        self._snode = snode
        self._paddings = paddings
        self._spec = spec

    def place(self, field: Any, **keywords: Any) -> None:
        self._snode.place(field, **keywords)
        axis = min(self._spec.index_ndim, _plan.MAX_AXES - 1)
        for snode, pad in reversed(self._paddings):
            if pad:
                _pad(self._package, snode, self._spec.dtype, pad, axis)


def _place_in(parent: Any, field: Any, spec: _Spec) -> None:
    if spec.offset is None:
        parent.place(field)
    else:
        parent.place(field, offset=spec.offset)


def _pad(package: Any, parent: Any, dtype: Any, count: int, axis: int = 0) -> None:
    parent.dense(package.axes(axis), count).place(package.field(dtype))


# ---- its memory ----


def _show(family: str, field: Any, spec: _Spec, tensor: Tensor) -> None:
    """Gives the tree the tensor's memory, if it is laid out as planned."""
    place = _snodes.layout_of(field)
    wanted = list(zip(spec.strides_bytes, spec.shape, strict=True))
    found = list(zip(place.strides_bytes, place.shape, strict=True))
    address = _kernels.address_of(family, field)
    alike = place.offset_bytes == spec.lead_bytes and all(
        want == have or want[1] == have[1] == 1 for want, have in zip(wanted, found, strict=True)
    )
    if not alike or (address - spec.lead_bytes) % PAGE_BYTES:
        raise LayoutError(
            f"{family} lays a field of shape {spec.shape} out with strides {place.strides_bytes} "
            f"instead of {spec.strides_bytes} bytes: hand the tensor to kernels by "
            "tidl.taichi.strided()"
        )
    pages = -(-(spec.lead_bytes + spec.span_bytes) // PAGE_BYTES)
    tensor._map_at(address - spec.lead_bytes, pages * PAGE_BYTES)
