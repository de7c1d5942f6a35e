# SPDX-License-Identifier: Apache-2.0
"""The wheel alone, installed without a network: autostart, the commands, README's example."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clean_room import CleanRoom, Place

ROOT = Path(__file__).resolve().parents[2]

TOOLS = ("cc", "gcc", "g++", "clang", "make", "ninja", "cmake", "pkg-config", "protoc-c")

# Publishes, looks with the command line, lets another process write, and ends the broker. One
# program, because a clean room's processes end with the first of them.
SCENARIO = """
import json, shutil, subprocess, sys
import tidl

def tidlctl(*words):
    result = subprocess.run(["tidlctl", *words], capture_output=True, text=True)
    return result.returncode, result.stdout

WRITE = "import tidl; tidl.connect().get('x', access='write').to_numpy().fill(7)"
with tidl.connect() as client:
    x = client.empty((2, 3)).to_numpy()
    publication = client.publish("x", x)
    other = subprocess.run([sys.executable, "-c", WRITE])
    status, listed = tidlctl("--json", "list")
    names = [entry["name"] for entry in json.loads(listed)["publications"]]
    with open("/proc/self/maps") as maps:
        mapped = sorted({line.split()[-1] for line in maps if ".so" in line})
ended, _ = tidlctl("shutdown")
gone, _ = tidlctl("list")
print(json.dumps({
    "copied": publication.copied, "values": x.tolist(), "other": other.returncode,
    "status": status, "names": names, "ended": ended, "gone": gone, "mapped": mapped,
    "package": tidl.__file__,
    "which": {name: shutil.which(name) for name in ("tidld", "tidlctl")},
}))
"""


def test_readme_example(place: Place) -> None:
    match = re.search(
        r"```python\n(.*?)```\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert match
    program, expected = match.groups()
    result = place.python("readme.py", program)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", expected)


def test_publish_look_and_stop(place: Place) -> None:
    result = place.python("scenario.py", SCENARIO)
    assert result.returncode == 0, result.stderr
    said = json.loads(result.stdout)
    assert (said["copied"], said["other"]) == (False, 0)
    assert said["values"] == [[7.0] * 3] * 2
    assert (said["status"], said["names"]) == (0, ["x"])
    assert (said["ended"], said["gone"]) == (0, 3)
    venv = str(place.seen / "venv")
    assert said["package"].startswith(venv)
    assert said["which"] == {name: f"{venv}/bin/{name}" for name in ("tidld", "tidlctl")}
    foreign = [name for name in said["mapped"] if re.search(r"libuv|protobuf|jansson", name)]
    assert foreign == []


@pytest.mark.parametrize("program", ["tidld", "tidlctl"])
def test_programs_start(place: Place, program: str) -> None:
    shown = place.check(place.seen / "venv/bin" / program, "--version")
    version = (ROOT / "CMakeLists.txt").read_text()
    match = re.search(r"project\(tidl VERSION (\S+)", version)
    assert match
    assert match[1] in shown


@pytest.mark.parametrize("place", ["clean room"], indirect=True)
def test_the_clean_room_is_clean(place: CleanRoom) -> None:
    ask = f"import shutil; print([shutil.which(name) for name in {TOOLS!r}])"
    said = place.check(place.seen / "venv/bin/python", "-c", ask)
    assert said.strip() == str([None] * len(TOOLS))
    files = [path.name for path in place.root.rglob("*.so*")]
    assert [name for name in files if re.match(r"lib(uv|protobuf|jansson|tidl)", name)] == []
    ask = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    result = place.run(place.seen / "venv/bin/python", "-c", ask)
    assert "Network is unreachable" in result.stderr


def test_uninstalls_without_a_trace(place: Place) -> None:
    python = place.seen / "venv/bin/python"
    pip = (python, "-m", "pip")
    try:
        place.check(*pip, "uninstall", "-y", "tidl")
        left = [path for path in (place.folder / "venv").rglob("*") if "tidl" in path.name]
        assert left == []
    finally:
        wheels = ("--no-index", "--find-links", place.seen / "wheels")
        place.check(*pip, "install", *wheels, "tidl")
