# SPDX-License-Identifier: Apache-2.0
"""Builds: CMake presets and the wheel."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .context import ROOT, Context

PACKAGE = ROOT / "client" / "python" / "src" / "tidl"


def build(context: Context, preset: str, *options: str, folder: str | None = None) -> Path:
    """Configures and builds a preset, once a run, in a folder of its own name unless given one."""
    binary = ROOT / "build" / (folder or preset)
    name = binary.name
    if binary in context.built:
        return binary
    configure: list[str | Path] = ["cmake", "--preset", preset, "-B", binary, *options]
    context.step(f"configure-{name}", configure, f"configure {name}")
    compile_: list[str | Path] = ["cmake", "--build", binary, "-j", str(context.jobs)]
    context.step(f"build-{name}", compile_, f"build {name}", timeout_s=1500)
    context.built.add(binary)
    return binary


def build_wheel(context: Context) -> None:
    context.step("wheel", [ROOT / "scripts" / "build-wheel"], "the wheel into dist", timeout_s=1200)


def install_wheel(context: Context) -> None:
    context.step(
        "wheel",
        [ROOT / "scripts" / "lib" / "install-wheel"],
        "the wheel into .venv",
        timeout_s=1200,
    )


def sanitizer_library(name: str) -> str:
    """The path of libasan or libtsan of the compiler that builds the presets."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
