# SPDX-License-Identifier: Apache-2.0
"""What importing the package does, and where it refuses."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tidl
from tidl import _core


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=False
    )


def test_import_brings_no_framework() -> None:
    result = python(
        "import sys, tidl, tidl.paddle, tidl.torch\n"
        "print(sorted({'numpy', 'torch', 'paddle', 'taichi'} & set(sys.modules)))"
    )
    assert result.stdout == "[]\n", result.stderr


@pytest.mark.dlpack_rule("P26")
def test_subinterpreters_are_refused() -> None:
    code = """
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create()
interpreters.run_string(other, '''
try:
    import tidl
except ImportError as error:
    assert 'main interpreter' in str(error), error
    print('refused', flush=True)
''')
import tidl
print('imported')
"""
    result = python(code)
    assert result.stdout == "refused\nimported\n", result.stderr


@pytest.mark.dlpack_rule("P26")
def test_free_threaded_builds_are_refused() -> None:
    code = """
import sysconfig
known = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else known(name)
try:
    import tidl
except ImportError as error:
    print(error)
"""
    assert "free-threaded" in python(code).stdout


@pytest.mark.dlpack_rule("P26")
def test_switched_off_gil_is_refused() -> None:
    code = """
import sys
sys._is_gil_enabled = lambda: False
try:
    import tidl
except ImportError as error:
    print(error)
"""
    assert "PYTHON_GIL=1" in python(code).stdout


def test_import_twice() -> None:
    """Each import has its own state; objects of the first go on working."""
    code = """
import sys, tidl
kept = tidl._core
for name in [name for name in sys.modules if name.partition('.')[0] == 'tidl']:
    del sys.modules[name]
import tidl as again
assert again._core is not kept
for core, package in ((kept, tidl), (again._core, again)):
    try:
        core.dtype_parse("no such thing")
    except package.DtypeError:
        print("raised")
"""
    result = python(code)
    assert result.stdout == "raised\nraised\n", result.stderr


def test_extension_has_the_stable_abi() -> None:
    path = Path(_core.__file__ or "")
    assert path.name == "_core.abi3.so"
    assert sysconfig.get_config_var("EXT_SUFFIX") != ".abi3.so"


def test_extension_keeps_libtidl_to_itself() -> None:
    result = subprocess.run(
        ["nm", "-D", "--defined-only", _core.__file__ or ""],
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.split()[-1] for line in result.stdout.splitlines()}
    assert "PyInit__core" in names
    assert not {name for name in names if name.startswith(("tidl_", "tdp_", "tdc_", "tpy_"))}


def test_version() -> None:
    assert tidl.__version__.count(".") == 2
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a build tree
        assert importlib.metadata.version("tidl") == tidl.__version__


def test_types_are_declared() -> None:
    folder = Path(tidl.__file__).parent
    assert (folder / "py.typed").exists()
    stub = (folder / "_core.pyi").read_text()
    for kind in (_core.Client, _core.Tensor, _core.Watch):
        for name in vars(kind):
            if name not in ("__doc__", "__module__", "__new__"):
                assert f"def {name}(" in stub, f"{kind.__name__}.{name}"


def test_objects_cannot_be_made_by_hand() -> None:
    for kind in (_core.Client, _core.Tensor, _core.Watch, tidl.Tensor):
        with pytest.raises(TypeError):
            kind()


def test_everything_public_has_a_docstring() -> None:
    for name in tidl.__all__:
        value = getattr(tidl, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name
    for kind in (tidl.Client, tidl.Tensor):
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert member.__doc__, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("program", ["tidld", "tidlctl"])
def test_programs_of_the_package(program: str) -> None:
    path = Path(tidl.__file__).parent / "bin" / program
    if not path.exists() and "TIDL_BUILD_DIR" not in os.environ:
        pytest.skip(f"this build has no {program}")
    result = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    assert tidl.__version__ in result.stdout
