# SPDX-License-Identifier: Apache-2.0
"""PaddlePaddle's side of the demo: publishes tensors, waits until they are painted, looks again."""

from __future__ import annotations

import sys

import demo_support as support
import numpy as np
import paddle

import tidl

PAINTER_TIMEOUT_S = 120


def publish(
    client: tidl.Client, name: str, tensor: paddle.Tensor, copy: bool | None = None
) -> None:
    publication = client.publish(name, tensor, copy=copy)
    copied = "yes, " + str(publication.reason) if publication.copied else "no"
    print(
        f"published {name}, shape {list(tensor.shape)}, strides {tensor.strides}, "
        f"{publication.path}, copied: {copied}"
    )
    if publication.copied:
        sys.exit("that was to be without a copy")


def exchange(
    client: tidl.Client, name: str, tensor: paddle.Tensor, copy: bool | None = None
) -> None:
    """Publishes the tensor and waits for the painter's sign."""
    publish(client, name, tensor, copy)
    support.report("published", tensor.data_ptr())
    client.get(f"{name}.painted", timeout=PAINTER_TIMEOUT_S).release()


def show_ones_become_zeros(client: tidl.Client) -> None:
    ones = client.empty((8, 4), dtype="float32").to_paddle()
    ones.fill_(1.0)
    print(f"made ones:\n{ones.numpy()}")
    exchange(client, "demo/ones", ones)
    print(f"looks again:\n{ones.numpy()}")
    if not bool((ones == 0.0).all()):
        sys.exit("those are not zeros")
    support.report("seen", ones.data_ptr())
    support.hold()
    client.remove("demo/ones")


def show_permuted_view(client: tidl.Client) -> None:
    whole = client.empty((2, 3, 4), dtype="float32").to_paddle()
    view = whole.transpose([2, 0, 1])
    exchange(client, "demo/permuted", view)
    wrong = 0
    for index in np.ndindex(*view.shape):
        i, j, k = index
        wrong += float(view[i, j, k]) != 100 * i + 10 * j + k
    print(f"checked view[i, j, k] == 100 i + 10 j + k: {view.size - wrong} of {view.size} right")
    if wrong:
        sys.exit("the painted view is not what it should be")
    support.report("seen", view.data_ptr())
    support.hold()
    client.remove("demo/permuted")


def show_own_memory(client: tidl.Client) -> None:
    """Paddle's own tensor, in memory that Paddle allocated: shared where it lies."""
    own = paddle.ones([512, 512])
    exchange(client, "demo/own", own, copy=False)
    print(f"sum of its own paddle.ones([512, 512]): {float(own.sum())}")
    if float(own.sum()) != 0.0:
        sys.exit("those are not zeros")
    support.report("seen", own.data_ptr())
    support.hold()
    client.unshare("demo/own")
    print(f"its memory is private again, with what was painted: {float(own.sum())}")


def paint_taichis_field(client: tidl.Client) -> None:
    with client.get("demo/field", access="write", timeout=PAINTER_TIMEOUT_S) as tensor:
        canvas = tensor.to_paddle()
        canvas.fill_(2.0)
        print("painted 2.0 over Taichi's field")
        client.publish("demo/field.painted", np.zeros((), dtype="uint8"))
        support.report("painted", canvas.data_ptr())
        support.hold()
        client.remove("demo/field.painted")


with tidl.connect() as client:
    show_ones_become_zeros(client)
    show_permuted_view(client)
    show_own_memory(client)
    paint_taichis_field(client)
