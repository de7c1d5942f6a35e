# SPDX-License-Identifier: Apache-2.0
"""Each check finds what it is there for, says what to do, and lets the rest pass."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from scripts_support import Project

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def header(name: str, body: str) -> str:
    return f"{SPDX}#ifndef {name}_H\n#define {name}_H\n\n{body}\n#endif\n"


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("proto/base/x.c", '"daemon/server.h"'),
        ("proto/base/x.c", '"proto/wire/packet.h"'),
        ("proto/wire/x.c", '"proto/mem/memfd.h"'),
        ("daemon/x.c", '"client/lib/conn.h"'),
        ("client/lib/x.c", '"daemon/server.h"'),
        ("client/ctl/x.c", '"proto/base/fd.h"'),
        ("client/python/x.c", '"client/lib/conn.h"'),
        ("include/tidl/x.h", '"proto/base/fd.h"'),
    ],
)
def test_layers_refuses_the_wrong_direction(project: Project, file: str, include: str) -> None:
    project.write(include.strip('"'), header("X", ""))
    project.write(file, f"{SPDX}#include {include}\n")
    result = project.check("check-layers")
    assert result.returncode == 1
    assert f"{file}:2:" in result.stdout
    assert "docs/architecture.md" in result.stderr


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("daemon/session.c", "<uv.h>"),
        ("proto/wire/x.c", '"tidl.pb-c.h"'),
        ("client/lib/x.c", "<Python.h>"),
        ("daemon/cuda.c", "<cuda.h>"),
        ("daemon/registry.c", "<sys/socket.h>"),
    ],
)
def test_layers_keeps_foreign_headers_in_their_place(
    project: Project, file: str, include: str
) -> None:
    project.write(file, f"{SPDX}#include {include}\n")
    result = project.check("check-layers")
    assert result.returncode == 1
    assert f"{file}:2:" in result.stdout


def test_layers_lets_the_right_direction_pass(project: Project) -> None:
    project.write("proto/base/fd.h", header("TDP_FD", ""))
    project.write("daemon/loop.c", f'{SPDX}#include "proto/base/fd.h"\n#include <uv.h>\n')
    project.write("client/ctl/x.c", f"{SPDX}#include <tidl/export.h>\n#include <stdio.h>\n")
    result = project.check("check-layers")
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_layers_reads_symbols_too(project: Project) -> None:
    # What only a declaration of its own brings in shows in no include.
    project.write("build/x.c", "void tdd_server_stop(void);\nvoid f(void) { tdd_server_stop(); }\n")
    project.write("build/y.c", "void tdp_own(void) {}\nvoid g(void) { tdp_own(); }\n")
    for source, status in (("y.c", 0), ("x.c", 1)):
        subprocess.run(["gcc", "-c", source, "-o", "x.o"], cwd=project.root / "build", check=True)
        subprocess.run(
            ["ar", "rcs", "libtidl_proto.a", "x.o"], cwd=project.root / "build", check=True
        )
        result = project.check("check-layers", "build")
        assert result.returncode == status, result.stdout
    assert "tdd_server_stop" in result.stdout


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_headers_must_stand_alone(project: Project) -> None:
    project.write("include/tidl/good.h", header("GOOD", "int tidl_good(void);\n"))
    assert project.check("check-headers").returncode == 0
    project.write("include/tidl/needy.h", header("NEEDY", "int tidl_needy(uint32_t x);\n"))
    result = project.check("check-headers")
    assert result.returncode == 1
    assert "tidl/needy.h with gcc in c99" in result.stdout
    assert "good.h" not in result.stdout


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_public_headers_stay_within_c99_and_cpp11(project: Project) -> None:
    project.write("include/tidl/new.h", header("NEW", '_Static_assert(1, "C11");\n'))
    result = project.check("check-headers")
    assert result.returncode == 1
    assert "tidl/new.h with g++ in c++11" in result.stdout


def function(lines: int) -> str:
    return f"{SPDX}int f(void)\n{{\n" + "\t;\n" * (lines - 3) + "\treturn 0;\n}\n"


@pytest.mark.parametrize(
    ("lines", "status", "is_named"), [(60, 0, False), (61, 0, True), (101, 1, True)]
)
def test_size_of_functions(project: Project, lines: int, status: int, is_named: bool) -> None:
    project.write("daemon/x.c", function(lines))
    result = project.check("check-size")
    assert result.returncode == status
    assert (f"f() has {lines} lines" in result.stdout) == is_named


@pytest.mark.parametrize(("lines", "status"), [(500, 0), (800, 0), (801, 1)])
def test_size_of_files(project: Project, lines: int, status: int) -> None:
    project.write("daemon/x.c", SPDX + "int x;\n" * (lines - 1))
    result = project.check("check-size")
    assert result.returncode == status
    assert (f"{lines} lines" in result.stdout) == (lines > 500)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("daemon/a.c", SPDX + "/* TO" + "DO: later */\n"),
        ("daemon/a.c", SPDX + "int x; // new style\n"),
        ("daemon/a.c", "int x;\n"),
        ("daemon/a.c", SPDX + "int x; \n"),
        ("daemon/a.c", SPDX + "int x;"),
        ("daemon/a.h", SPDX + "#pragma once\n"),
        ("docs/a.md", "It lies in /ho" + "me/me/tidl.\n"),
        ("docs/a.md", "Take it from py" + "pi.org.\n"),
        ("include/a.h", header("A", "struct DLManagedTensor" + "Versioned {\n};\n")),
        ("scripts/a", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"),
    ],
)
def test_style_finds(project: Project, name: str, text: str) -> None:
    assert project.check("check-style").returncode == 0
    project.write(name, text)
    result = project.check("check-style")
    assert result.returncode == 1
    assert result.stdout.startswith(name)


@pytest.mark.skipif(not shutil.which("clang-format-14"), reason="no clang-format-14")
def test_format_finds_and_mends(project: Project) -> None:
    project.write("daemon/x.c", SPDX + "int  f( void ) { return 0; }\n")
    assert project.check("check-format").returncode == 1
    assert project.check("check-format", "--fix").returncode == 0
    assert project.check("check-format").returncode == 0
