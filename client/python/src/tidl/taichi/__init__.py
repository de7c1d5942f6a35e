# SPDX-License-Identifier: Apache-2.0
"""The DLPack back end of Taichi, and of its forks quadrants and gstaichi.

    import taichi as ti
    import tidl.taichi

    ti.init(arch=ti.cpu)
    f = ti.field(ti.f32, shape=(8, 4))
    t = torch.from_dlpack(tidl.taichi.to_dlpack(f))  # the field's own memory
    paint(tidl.taichi.from_dlpack(t))                # an argument for ti.types.ndarray()

`from_dlpack()` takes what is row-major in some order of its axes, `strided()` takes any strides.
Nothing here copies. No framework is imported until it is used.
"""

from typing import TYPE_CHECKING, Any

from tidl.taichi._attach import attach_field, detach_field
from tidl.taichi._export import Export, to_dlpack
from tidl.taichi._import import from_dlpack
from tidl.taichi._kernels import flat_index_for
from tidl.taichi._share import share
from tidl.taichi._strided import Strided, strided

__all__ = [
    "Export",
    "Strided",
    "attach_field",
    "detach_field",
    "flat_index",
    "flat_index_for",
    "from_dlpack",
    "share",
    "strided",
    "to_dlpack",
]


if TYPE_CHECKING:
    flat_index: Any
else:
    # Made by Taichi, so Taichi has to be imported for it, and only for it.
    def __getattr__(name: str) -> Any:
        if name != "flat_index":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return flat_index_for("taichi")
