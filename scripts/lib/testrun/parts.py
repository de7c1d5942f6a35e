# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/test, in the order in which they run: cheap answers first."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tree

from . import builds, examples, results
from .context import ROOT, Context
from .results import Tally

SCRIPTS = ROOT / "scripts"
TYPED_SCRIPTS = ("testrun", "tree.py", "demo.py")


@dataclass(frozen=True)
class Part:
    name: str
    run: Callable[[Context], Tally]
    text: str
    is_quick: bool = False
    needs_frameworks: bool = False


# ---- static checks ----


def sources(is_wanted: Callable[[str], bool]) -> list[str | Path]:
    return [ROOT / name for name in tree.files() if is_wanted(name)]


def static_checks() -> Iterable[tuple[str, list[str | Path]]]:
    yield "format", [SCRIPTS / "check-format"]
    yield "style", [SCRIPTS / "check-style"]
    yield "layers", [SCRIPTS / "check-layers"]
    yield "headers", [SCRIPTS / "check-headers"]
    yield "size", [SCRIPTS / "check-size"]
    yield "shellcheck", ["shellcheck", "-x", *sources(tree.is_shell)]
    yield "ruff", ["ruff", "check", "--no-cache", *sources(tree.is_python)]
    yield "ruff-format", ["ruff", "format", "--no-cache", "--check", *sources(tree.is_python)]
    yield (
        "mypy-scripts",
        [
            "mypy",
            "--strict",
            *(SCRIPTS / "lib" / name for name in ("testrun", "tree.py", "demo.py")),
        ],
    )
    yield (
        "mypy-package",
        [
            "mypy",
            "--strict",
            "--config-file",
            ROOT / "client/python/pyproject.toml",
            builds.PACKAGE,
        ],
    )
    programs = ROOT / "build" / "examples"
    examples.extract(programs)
    # Strict, as its configuration says.
    yield "mypy-examples", ["mypy", "--config-file", SCRIPTS / "lib/mypy-examples.ini", programs]


def run_checks(context: Context) -> Tally:
    tally = Tally()
    for name, command in static_checks():
        if context.run(f"check-{name}", command):
            tally.add_pass()
        else:
            tally.add_failure(f"{name}: see build/logs/check-{name}.log")
            context.show_log(f"check-{name}")
    return tally


# ---- ctest ----


def no_random_layout() -> list[str]:
    """
    The sanitizers of GCC 12 and Clang 14 place their shadow at fixed addresses, which the 32 random
    bits of mmap in kernels from 6.6 on can hit. Without randomisation they never meet.
    """
    command = ["setarch", "--addr-no-randomize"]
    try:
        works = subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        works = False
    return command if works else []


def sanitizer_options(log: Path) -> dict[str, str]:
    common = f"log_path={log}:print_stacktrace=1"
    strict = "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1"
    return {
        "ASAN_OPTIONS": f"{common}:{strict}",
        "UBSAN_OPTIONS": common,
        "TSAN_OPTIONS": f"{common}:second_deadlock_stack=1",
    }


# ctest's own order among entries that share something; those that share nothing come first.
ALONE, SETUP, DEPENDENT, CLEANUP = range(4)


@dataclass(frozen=True)
class Entry:
    """One entry of ctest."""

    index: int
    name: str
    phase: int

    @property
    def stem(self) -> str:
        return self.name.replace("/", ".")


def ctest_phase(properties: set[str]) -> int:
    if "FIXTURES_CLEANUP" in properties:
        return CLEANUP
    if "FIXTURES_SETUP" in properties:
        return SETUP
    return DEPENDENT if properties & {"FIXTURES_REQUIRED", "DEPENDS", "RUN_SERIAL"} else ALONE


def ctest_entries(binary: Path) -> list[Entry]:
    command = ["ctest", "--test-dir", str(binary), "--show-only=json-v1"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    entries = []
    for index, test in enumerate(json.loads(text)["tests"], 1):
        properties = {entry["name"] for entry in test.get("properties", ())}
        entries.append(Entry(index, test["name"], ctest_phase(properties)))
    return sorted(entries, key=lambda entry: entry.phase)


def run_entry(context: Context, part: str, binary: Path, entry: Entry) -> Tally:
    """One entry, with a report of its own."""
    folder = context.results / part
    junit, criterion = folder / f"{entry.stem}.ctest.xml", folder / f"{entry.stem}.xml"
    environment = sanitizer_options(folder / f"{entry.stem}.sanitizer")
    environment["CRITERION_OUTPUTS"] = f"xml:{criterion}"
    command: list[str | Path] = [*no_random_layout(), "ctest", "--test-dir", binary, "-FA", ".*"]
    command += ["-I", f"{entry.index},{entry.index}", "--output-junit", junit]
    command += ["--output-on-failure", "--timeout", "120"]
    log = f"{part}-{entry.stem}"
    if not context.run(log, command, environment, timeout_s=600):
        context.show_log(log)
    return results.read_ctest_entry(junit, criterion)


def run_ctest(context: Context, part: str, binary: Path) -> Tally:
    """Runs each entry of ctest: as many at a time as there are cores, then those in order."""
    folder = context.fresh_results(part)
    entries = ctest_entries(binary)
    run = functools.partial(run_entry, context, part, binary)
    tally = Tally()
    with ThreadPoolExecutor(context.jobs) as pool:
        for found in pool.map(run, [entry for entry in entries if entry.phase == ALONE]):
            tally += found
    for entry in entries:
        if entry.phase != ALONE:
            tally += run(entry)
    tally += results.read_sanitizer_logs(folder)
    return tally


def run_unit(context: Context) -> Tally:
    binary = builds.build(context, "dev")
    tally = run_ctest(context, "unit", binary)
    if context.run("check-symbols", [SCRIPTS / "check-layers", binary]):
        tally.add_pass()
    else:
        tally.add_failure("check-layers: undefined symbols, see build/logs/check-symbols.log")
        context.show_log("check-symbols")
    return tally


def run_release(context: Context) -> Tally:
    return run_ctest(context, "release", builds.build(context, "release"))


def run_clang(context: Context) -> Tally:
    binary = builds.build(context, "release", "-DCMAKE_C_COMPILER=clang-14", folder="clang")
    return run_ctest(context, "clang", binary)


def run_tsan(context: Context) -> Tally:
    binary = builds.build(context, "tsan")
    return run_ctest(context, "tsan", binary)


def run_tidy(context: Context) -> Tally:
    tally = Tally()
    binary = builds.build(context, "release", "-DCMAKE_C_COMPILER=clang-14", folder="clang")
    command: list[str | Path] = [
        "run-clang-tidy-14",
        "-quiet",
        "-p",
        binary,
        "-j",
        str(context.jobs),
    ]
    command.append(r"^(?!.*(/build/|/tests/)).*\.c$")
    if context.run("tidy", command, timeout_s=1200):
        tally.add_pass()
    else:
        tally.add_failure("clang-tidy: see build/logs/tidy.log")
        context.show_log("tidy")
    return tally


# Some seconds each; a crash that a longer run found becomes a seed of the corpus.
FUZZ_RUNS, FUZZ_MAX_S = 100_000, 60
FUZZ_TARGETS = ("codec", "layout", "names")


def run_fuzz(context: Context) -> Tally:
    """A short run of each target from the corpus, with a fixed seed: the same one each time."""
    tally = Tally()
    folder = context.fresh_results("fuzz")
    programs = builds.build(context, "fuzz", "-DCMAKE_C_COMPILER=clang-14") / "tests" / "fuzz"
    corpus = folder / "corpus"
    context.step("fuzz-corpus", [programs / "fuzz_make_corpus", corpus], "make the corpus")
    for target in FUZZ_TARGETS:
        found = folder / f"found-{target}"
        found.mkdir()
        command: list[str | Path] = [*no_random_layout(), programs / f"fuzz_{target}"]
        command += [f"-runs={FUZZ_RUNS}", "-seed=1", f"-max_total_time={FUZZ_MAX_S}"]
        command += [f"-artifact_prefix={folder}/", found, corpus / target]
        log = f"fuzz-{target}"
        if context.run(log, command, sanitizer_options(folder / f"{target}.sanitizer")):
            tally.add_pass()
        else:
            tally.add_failure(f"fuzz {target}: see build/logs/{log}.log")
            context.show_log(log)
    return tally


# ---- pytest ----


TEST_TIMEOUT_S = 120

# Each has a broker of its own, and up to 2 GB of frameworks.
PYTEST_WORKERS_MAX = 4


def run_pytest(
    context: Context, part: str, folders: Sequence[str], environment: Mapping[str, str]
) -> Tally:
    """Each folder by itself: they have support modules of the same names."""
    results_folder = context.fresh_results(part)
    environment = {**sanitizer_options(results_folder / "pytest.sanitizer"), **environment}
    tally = Tally()
    for folder in folders:
        if any((ROOT / folder).glob("test_*.py")):
            tally += run_pytest_folder(context, part, folder, environment)
    tally += results.read_sanitizer_logs(results_folder)
    return tally


def run_pytest_folder(
    context: Context, part: str, folder: str, environment: Mapping[str, str]
) -> Tally:
    name = Path(folder).name
    log = f"{part}-{name}"
    report = context.results / part / f"{name}.xml"
    command: list[str | Path] = [*no_random_layout(), context.python, "-m", "pytest", "-q", "-ra"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}"]
    # Who has nothing left to do takes tests from the end of another's list.
    command += ["-n", str(min(context.jobs, PYTEST_WORKERS_MAX)), "--dist", "worksteal"]
    # A test that hangs shows where, and ends its process, which fails it.
    command += ["-o", f"faulthandler_timeout={TEST_TIMEOUT_S}"]
    command += ["-o", "faulthandler_exit_on_timeout=true"]
    # A folder of few letters: sockets lie below it, and their paths have 108 bytes.
    command += [f"--basetemp={context.runtime / name}", ROOT / folder]
    is_good = context.run(log, command, environment, timeout_s=1200)
    tally = results.read_junit(report) if report.exists() else Tally()
    if not is_good and not tally.failed:
        tally.add_failure(f"{folder}: pytest did not end well, see build/logs/{log}.log")
    if tally.failed:
        context.show_log(log)
    return tally


def run_tools(context: Context) -> Tally:
    return run_pytest(context, "tools", ["tests/scripts"], {})


def package_environment(binary: Path) -> dict[str, str]:
    """Python and the programs of one build, for tests that start brokers of their own."""
    return {
        "PYTHONPATH": str(binary / "client" / "python"),
        "TIDL_DAEMON": str(binary / "daemon" / "tidld"),
        "TIDL_BUILD_DIR": str(binary),
    }


PYTHON_FOLDERS = ("tests/python", "tests/ctl", "tests/integration")

# As `-X dev -X faulthandler`, for the processes that tests start, too: a Python that ends at the
# first use of its memory without the GIL, sees writes beyond an object, and says where it crashed.
STRICT_PYTHON = {"PYTHONDEVMODE": "1", "PYTHONFAULTHANDLER": "1"}


def run_python(context: Context) -> Tally:
    """NumPy alone under ASan and UBSan: the frameworks bring allocators that do not go with it."""
    environment = package_environment(builds.build(context, "dev"))
    environment["LSAN_OPTIONS"] = (
        f"suppressions={ROOT / 'tests/support/python.supp'}:print_suppressions=0"
    )
    environment["LD_PRELOAD"] = builds.sanitizer_library("libasan.so")
    environment["TIDL_TEST_FRAMEWORKS"] = "numpy"
    return run_pytest(context, "python", PYTHON_FOLDERS, environment | STRICT_PYTHON)


def run_frameworks(context: Context) -> Tally:
    """Everything that is installed, over the wheel, as a user has it."""
    builds.install_wheel(context)
    environment = {"TIDL_BUILD_DIR": str(builds.build(context, "release"))}
    return run_pytest(context, "frameworks", PYTHON_FOLDERS, environment | STRICT_PYTHON)


def run_packaging(context: Context) -> Tally:
    """The wheel, on a machine that has nothing else."""
    builds.build_wheel(context)
    return run_pytest(context, "packaging", ["tests/packaging"], {})


def run_docs(context: Context) -> Tally:
    """What README and examples print is what they do."""
    builds.install_wheel(context)
    environment = {"TIDL_BUILD_DIR": str(builds.build(context, "release"))}
    return run_pytest(context, "docs", ["tests/docs"], environment)


def run_demo(context: Context) -> Tally:
    tally = Tally()
    if context.run("demo", [SCRIPTS / "demo"], timeout_s=600):
        tally.add_pass()
    else:
        tally.add_failure("demo: see build/logs/demo.log")
        context.show_log("demo")
    return tally


PARTS = (
    Part(
        "checks",
        run_checks,
        "format, style, layers, headers, sizes, shell, Python types",
        is_quick=True,
    ),
    Part("tools", run_tools, "the scripts' own tests", is_quick=True),
    Part("unit", run_unit, "C tests, debug build, ASan and UBSan", is_quick=True),
    Part("python", run_python, "pytest with NumPy, debug build, ASan and UBSan", is_quick=True),
    Part("release", run_release, "C tests, optimised build"),
    Part("clang", run_clang, "C tests, Clang 14"),
    Part("tidy", run_tidy, "clang-tidy"),
    Part("tsan", run_tsan, "C tests, ThreadSanitizer"),
    Part("fuzz", run_fuzz, "fuzz targets, a short run from the corpus"),
    Part("packaging", run_packaging, "the wheel, in a clean environment"),
    Part(
        "frameworks",
        run_frameworks,
        "pytest with every framework, over the wheel",
        needs_frameworks=True,
    ),
    Part("docs", run_docs, "README and examples as printed", needs_frameworks=True),
    Part("demo", run_demo, "scripts/demo", needs_frameworks=True),
)
