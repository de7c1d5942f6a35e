# SPDX-License-Identifier: Apache-2.0
"""Places to install a wheel in and to run what it brings.

`BareVenv` is an empty virtual environment of this machine. `CleanRoom` is one on a machine that has
nothing else: a root folder with a Python, glibc and what those two and NumPy load, and no network,
entered through namespaces. No compiler, no CMake, no library of tidl's is in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

Result = subprocess.CompletedProcess[str]

TIMEOUT_S = 120

# What the base interpreter, not that of a virtual environment, consists of.
ASK_FOR_PARTS = """
import json, os, sys, sysconfig
print(json.dumps({
    "program": os.path.realpath(sys.executable),
    "folders": sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}),
    "wheels": sysconfig.get_config_var("WHEEL_PKG_DIR"),
}))
"""

# /dev with all that is mounted below it: a part of it alone is not given away.
ENTER = """
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
root=$1
shift
exec chroot "$root" "$@"
"""


class Place:
    """Somewhere with a Python, where `folder` is seen under `seen`."""

    def __init__(self, folder: Path, seen: Path) -> None:
        self.folder = folder
        self.seen = seen

    def environment(self) -> dict[str, str]:
        path = f"{self.seen / 'venv/bin'}:/usr/bin:/bin"
        return {"PATH": path, "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(self.seen / "run")}

    def base_python(self) -> str:
        raise NotImplementedError

    def run(self, *command: str | Path) -> Result:
        raise NotImplementedError

    def prepare(self, wheels: list[Path]) -> None:
        """Makes the virtual environment and installs wheels, and nothing else, into it."""
        (self.folder / "wheels").mkdir(parents=True)
        (self.folder / "run").mkdir(mode=0o700)
        for wheel in wheels:
            shutil.copy(wheel, self.folder / "wheels")
        venv = self.seen / "venv"
        self.check(self.base_python(), "-m", "venv", venv)
        names = [wheel.name.partition("-")[0] for wheel in wheels]
        install = ["install", "--no-index", "--find-links", str(self.seen / "wheels")]
        self.check(venv / "bin/python", "-m", "pip", *install, *names)

    def check(self, *command: str | Path) -> str:
        """What a command prints that must succeed."""
        result = self.run(*command)
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
        return result.stdout

    def python(self, name: str, program: str) -> Result:
        (self.folder / name).write_text(program)
        return self.run(self.seen / "venv/bin/python", self.seen / name)


class BareVenv(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder)

    def base_python(self) -> str:
        return str(sys._base_executable)  # type: ignore[attr-defined]

    def run(self, *command: str | Path) -> Result:
        return subprocess.run(
            list(map(str, command)),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


class CleanRoom(Place):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "test", Path("/test"))
        self.root = folder
        parts = subprocess.run(
            [sys._base_executable, "-I", "-c", ASK_FOR_PARTS],  # type: ignore[attr-defined]
            capture_output=True,
            text=True,
            check=True,
        )
        self.parts = json.loads(parts.stdout)
        self._furnish()

    def base_python(self) -> str:
        return str(self.parts["program"])

    def run(self, *command: str | Path) -> Result:
        words = [*_unshare(), "sh", "-ec", ENTER, "sh", self.root, *command]
        # chroot, mount and sh are the outside's; inside there are none of them.
        environment = self.environment()
        environment["PATH"] += ":/usr/sbin:/sbin"
        return subprocess.run(
            list(map(str, words)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def _furnish(self) -> None:
        for name in ("dev", "proc", "tmp", "test"):
            (self.root / name).mkdir(parents=True)
        program = Path(self.parts["program"])
        loaded = [program, *_numpy_modules()]
        self._copy(program)
        unwanted = shutil.ignore_patterns(
            "__pycache__", "dist-packages", "site-packages", "config-*", "test", "tests", "*.a"
        )
        folders = [Path(folder) for folder in self.parts["folders"]]
        for folder in folders:
            shutil.copytree(folder, self._inside(folder), ignore=unwanted, dirs_exist_ok=True)
            loaded += folder.glob("lib-dynload/*.so")
        if self.parts["wheels"]:
            wheels = Path(self.parts["wheels"])
            shutil.copytree(wheels, self._inside(wheels))
        for library in sorted(set(_libraries(loaded))):
            self._copy(library)

    def _inside(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def _copy(self, path: Path) -> None:
        inside = self._inside(path)
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, inside)  # under the name that it is loaded by


def _numpy_modules() -> list[Path]:
    """NumPy leaves some libraries of GCC to the system, as wheels may."""
    import numpy

    return sorted(Path(numpy.__file__).parent.rglob("*.so"))


def _libraries(files: list[Path]) -> Iterator[Path]:
    """The system's libraries that files load, and the loader."""
    text = subprocess.run(
        ["ldd", *map(str, files)], capture_output=True, text=True, check=True
    ).stdout
    ours = Path(sys.prefix)
    for name in re.findall(r"^\t(?:\S+ => )?(/\S+) \(", text, re.MULTILINE):
        if not Path(name).is_relative_to(ours):
            yield Path(name)


def _unshare() -> list[str]:
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--mount", "--net", "--pid", "--fork", "--kill-child"]


def why_no_clean_room() -> str | None:
    """Why this machine cannot have one; None if it can."""
    missing = [name for name in ("unshare", "mount", "chroot") if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]}"
    # What entering takes, tried on a folder that is there.
    trial = [*_unshare(), "sh", "-ec", "mount -t proc proc /proc"]
    result = subprocess.run(trial, capture_output=True, text=True, timeout=30, check=False)
    if result.returncode:
        return f"no namespaces of one's own here: {result.stderr.strip()}"
    return None
