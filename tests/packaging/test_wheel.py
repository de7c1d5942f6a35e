# SPDX-License-Identifier: Apache-2.0
"""What is in the wheel, what that needs from the system, and that its name says so."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BINARIES = ("tidl/_core.abi3.so", "tidl/bin/tidld", "tidl/bin/tidlctl")

# glibc's own: the loader, and what newer ones have merged into libc.
GLIBC = re.compile(r"ld-linux.*|lib(c|m|dl|rt|pthread)\.so\.\d")

FLAGS = re.compile(r"manylinux_2_(\d+)_(\w+)\.whl$")


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def readelf(option: str, file: Path) -> str:
    command = ["readelf", "--wide", option, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_name_is_for_every_python_and_says_which_glibc(wheel: Path) -> None:
    assert FLAGS.search(wheel.name), wheel.name
    assert "-cp311-abi3-" in wheel.name


@pytest.mark.parametrize("binary", BINARIES)
def test_needs_glibc_alone(unpacked: Path, binary: str) -> None:
    dynamic = readelf("--dynamic", unpacked / binary)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert "libc.so.6" in needed
    assert [name for name in needed if not GLIBC.fullmatch(name)] == []
    assert not re.search(r"\((RPATH|RUNPATH|TEXTREL)\)", dynamic)


@pytest.mark.parametrize("binary", BINARIES)
def test_glibc_is_no_newer_than_the_name_says(wheel: Path, unpacked: Path, binary: str) -> None:
    versions = re.findall(r"GLIBC_2\.(\d+)", readelf("--version-info", unpacked / binary))
    match = FLAGS.search(wheel.name)
    assert versions
    assert match
    assert max(map(int, versions)) <= int(match[1])


def test_extension_shows_its_entry_alone(unpacked: Path) -> None:
    """Another copy of libuv or protobuf-c in the process meets none of ours."""
    symbols = readelf("--dyn-syms", unpacked / BINARIES[0])
    defined = [
        line.split()[-1]
        for line in symbols.splitlines()
        if re.search(r" (GLOBAL|WEAK) +DEFAULT +\d+ ", line)
    ]
    assert defined == ["PyInit__core"]


def test_programs_can_run(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        modes = {name: archive.getinfo(name).external_attr >> 16 for name in BINARIES[1:]}
    assert all(mode & 0o111 == 0o111 for mode in modes.values()), modes


def test_holds_what_belongs_in_it_and_nothing_else(unpacked: Path) -> None:
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    source = ROOT / "client/python/src"
    package = {
        str(path.relative_to(source))
        for path in (source / "tidl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    (info,) = unpacked.glob("tidl-*.dist-info")
    rest = {name for name in files - package - set(BINARIES) if not name.startswith(info.name)}
    assert rest == set()
    assert package | set(BINARIES) <= files
    assert "tidl/py.typed" in files


def test_licences_of_what_is_inside(unpacked: Path) -> None:
    (licences,) = unpacked.glob("tidl-*.dist-info/licenses")
    assert (licences / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    others = (licences / "THIRD-PARTY.txt").read_text()
    assert re.findall(r"^==== (.*) ====$", others, re.MULTILINE) == [
        "libuv",
        "protobuf-c",
        "Jansson",
    ]


def test_commands(unpacked: Path) -> None:
    (entries,) = unpacked.glob("tidl-*.dist-info/entry_points.txt")
    assert set(re.findall(r"^(\w+) ?=", entries.read_text(), re.MULTILINE)) == {"tidld", "tidlctl"}
