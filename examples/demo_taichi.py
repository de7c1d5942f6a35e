# SPDX-License-Identifier: Apache-2.0
"""Taichi's side of the demo: attaches what the other process published, and paints it.

In the second act it captures a field that is the other's tensor, and shares a field of its own.
"""

import sys

import demo_support as support
import numpy as np
import taichi as ti

import tidl
import tidl.taichi

PUBLISHER_TIMEOUT_S = 120

ti.init(arch=ti.cpu, log_level=ti.ERROR, offline_cache=False)


@ti.kernel
def paint(canvas: ti.types.ndarray(dtype=ti.f32, ndim=2), value: ti.f32):
    for i, j in canvas:
        canvas[i, j] = value


@ti.kernel
def paint_each(canvas: ti.types.ndarray(dtype=ti.f32, ndim=3), a: ti.i32, b: ti.i32, c: ti.i32):
    # The axes come in the order in which they lie in memory; a, b and c weigh them.
    for x, y, z in canvas:
        canvas[x, y, z] = ti.cast(a * x + b * y + c * z, ti.f32)


def attach(client: tidl.Client, name: str) -> tidl.Tensor:
    tensor: tidl.Tensor = client.get(name, access="write", timeout=PUBLISHER_TIMEOUT_S)
    print(f"attached {name}, shape {list(tensor.shape)}, strides {list(tensor.strides)}")
    return tensor


def finish(client: tidl.Client, name: str, address: int) -> None:
    """Tells the publisher, and keeps the memory until somebody has looked at who holds it."""
    client.publish(f"{name}.painted", np.zeros((), dtype="uint8"))
    support.report("painted", address)
    support.hold()
    client.remove(f"{name}.painted")


def paint_zeros(client: tidl.Client) -> None:
    with attach(client, "demo/ones") as tensor:
        canvas = tensor.to_taichi()
        paint(canvas, 0.0)
        print("painted 0.0 in a Taichi kernel")
        finish(client, "demo/ones", canvas.ctypes.data)


def paint_permuted_view(client: tidl.Client) -> None:
    with attach(client, "demo/permuted") as tensor:
        # A kernel takes row-major memory: hand it the axes as they lie there, and their weights.
        axes = tensor.compact_axes
        assert axes is not None  # no gaps: some order of the axes is row-major
        canvas = tensor.to_taichi(axes=axes)
        weights = [(100, 10, 1)[axis] for axis in axes]
        paint_each(canvas, *weights)
        print("painted each element in its own colour")
        finish(client, "demo/permuted", canvas.ctypes.data)


@ti.kernel
def address(field: ti.template()) -> ti.u64:
    return ti.get_addr(field, [0, 0])


def paint_in_a_field(client: tidl.Client) -> None:
    """The loop over a field: here the field is a tensor that Paddle allocated for itself."""
    with attach(client, "demo/own") as tensor:
        x_taichi = tidl.taichi.attach_field(tensor)

        @ti.kernel
        def paint_field():
            for i, j in x_taichi:
                x_taichi[i, j] = 0.0

        paint_field()
        print("painted 0.0 with `for i, j in x_taichi:`")
        finish(client, "demo/own", address(x_taichi))
        tidl.taichi.detach_field(x_taichi)


def share_own_field(client: tidl.Client) -> None:
    """Taichi's own field, shared where it lies; Paddle paints it."""
    field = ti.field(ti.f32, shape=(512, 512))
    field.fill(1.0)
    publication = tidl.taichi.share(field, "demo/field", client=client)
    print(f"shared its own field of {field.shape}, {publication.path}")
    support.report("published", address(field))
    client.get("demo/field.painted", timeout=PUBLISHER_TIMEOUT_S).release()
    print(f"its field now has the sum {field.to_numpy().sum():.0f}")
    if not (field.to_numpy() == 2.0).all():
        sys.exit("those are not twos")
    support.report("seen", address(field))
    support.hold()
    client.unshare("demo/field")


with tidl.connect() as client:
    paint_zeros(client)
    paint_permuted_view(client)
    paint_in_a_field(client)
    share_own_field(client)
