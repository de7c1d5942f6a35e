# SPDX-License-Identifier: Apache-2.0
"""The man pages say neither more nor less than the programs and the headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ctl_support import HERE, program

ROOT = HERE.parent.parent
PAGES = sorted((ROOT / "docs" / "man").glob("*.scd"))


def page(name: str) -> str:
    return (ROOT / "docs" / "man" / f"{name}.scd").read_text(encoding="utf-8")


def help_of(relative: str) -> str:
    done = subprocess.run([program(relative), "--help"], capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("relative", "name"), [("daemon/tidld", "tidld.8"), ("client/ctl/tidlctl", "tidlctl.1")]
)
def test_options(relative: str, name: str) -> None:
    built = set(re.findall(r"^  (--[\w-]+)", help_of(relative), flags=re.M))
    described = set(re.findall(r"^(?:\*-\w\*, )?\*(--[\w-]+)\*", page(name), flags=re.M))
    assert built
    assert described == built


def test_commands() -> None:
    commands = help_of("client/ctl/tidlctl").partition("commands:\n")[2].partition("\n\n")[0]
    built = {line.split()[0] for line in commands.splitlines()}
    described = page("tidlctl.1").partition("# COMMANDS\n")[2].partition("\n# ")[0]
    assert set(re.findall(r"^\*(\w+)\*", described, flags=re.M)) == built


def test_error_codes() -> None:
    header = (ROOT / "include" / "tidl" / "error.h").read_text(encoding="utf-8")
    built = set(re.findall(r"^\tTIDL_ERR_(\w+) =", header, flags=re.M))
    errors = page("tidl.7").partition("# ERRORS\n")[2].partition("\n# ")[0]
    assert built
    assert set(re.findall(r"^\|. ([A-Z_]+)$", errors, flags=re.M)) == built


def test_functions_exist() -> None:
    folder = ROOT / "include" / "tidl"
    headers = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.h*")))
    for function in set(re.findall(r"\b(tidl_[a-z_]+)\b", page("tidl.7"))) - {"tidl_client"}:
        assert re.search(rf"\b{function}\b", headers), function


def test_every_function_is_there() -> None:
    exported = (ROOT / "client" / "lib" / "libtidl.map").read_text(encoding="utf-8")
    functions = set(re.findall(r"^\t(tidl_\w+);", exported, flags=re.M))
    interface = page("tidl.7").partition("# C INTERFACE\n")[2].partition("\n# ")[0]
    assert "tidl_publish" in functions
    assert sorted(functions - set(re.findall(r"\btidl_\w+", interface))) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_compile(path: Path) -> None:
    scdoc = shutil.which("scdoc")
    if not scdoc:
        pytest.skip("scdoc is not installed")
    done = subprocess.run([scdoc], input=path.read_bytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
