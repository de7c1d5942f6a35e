# SPDX-License-Identifier: Apache-2.0
"""Which test proves which rule of docs/dlpack.md, read from the sources.

The tests of this folder say it themselves: `@pytest.mark.dlpack_rule("P7")`. Those of other folders
are listed below.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).parent

RULES = [
    *(f"P{number}" for number in range(1, 27)),
    *(f"C{number}" for number in range(1, 20)),
    *(f"X{number}" for number in range(1, 8)),
]

# The rules that a test elsewhere proves. `file: name`; of what the compiler proves, the file alone.
ELSEWHERE: dict[str, list[str]] = {
    "proto/tensor/dlpack_abi.c": ["P3"],
    "tests/unit/client/test_export.c: fields": ["P1", "P4", "P5", "P7", "P17"],
    "tests/unit/client/test_export.c: empty_tensors_have_no_address": ["P6"],
    "tests/unit/client/test_export.c: read_only_memory_is_flagged_and_refused_unversioned": ["P8"],
    "tests/unit/client/test_export.c: padding_is_flagged_and_refused_unversioned": ["P20"],
    "tests/unit/client/test_export.c: a_second_call_of_the_deleter_does_nothing": ["P14"],
    "tests/unit/client/test_export.c: after_disconnect_the_memory_stays_until_the_deleter": [
        "P14",
        "P15",
        "P25",
    ],
    "tests/unit/client/test_export.c: deleters_in_many_threads_release_each_lease_once": [
        "P14",
        "P15",
    ],
    "tests/unit/client/test_export.c: a_forked_child_unmaps_but_never_releases": ["P15", "X7"],
    "tests/unit/client/test_export.c: fork_while_threads_delete": ["P15"],
    "tests/unit/client/test_export.c: the_last_of_tensor_and_exports_releases": ["P18", "P19"],
    "tests/unit/client/test_gone.c: calls_say_so_and_memory_stays": ["P25"],
    "tests/unit/client/test_views.c: every_data_type_keeps_its_bits": ["P20"],
    "tests/unit/client/test_views.c: of_allocated_memory_are_not_copied": ["C19"],
    "tests/unit/client/test_views.c: of_foreign_memory_are_copied_once": ["C6"],
    "tests/unit/client/test_import.c: of_a_higher_major_version_nothing_is_read": ["C2"],
    "tests/unit/client/test_import.c: byte_offset_and_negative_strides": ["C6"],
    "tests/unit/client/test_import.c: empty_tensors_need_no_address": ["C7"],
    "tests/unit/client/test_import.c: nonsense_is_refused": ["C8", "C9"],
    "tests/unit/client/test_import.c: devices": ["C10"],
    "tests/unit/client/test_liar.c: grants": ["P22", "X1"],
    "tests/unit/client/test_fork.c: the_end_of_a_child_ends_nothing_of_the_parent": ["X7"],
    "tests/unit/client/test_rights.c: mode_bits_hold": ["X2"],
    "tests/unit/proto/test_dtype.c: takes_exactly_the_listed_codes_and_widths": ["P20", "C9"],
    "tests/unit/proto/test_layout.c: normal_strides": ["P5"],
    "tests/unit/proto/test_layout.c: check_refuses_the_rest": ["P22"],
    "tests/unit/proto/test_layout.c: measure_refuses_what_no_memory_holds": ["P22", "C8"],
    "tests/unit/proto/test_layout_random.c: agrees_with_brute_force": ["P22", "C6", "C8"],
    "tests/unit/proto/test_codec.c: publish": ["X1"],
    "tests/unit/proto/test_codec.c: granted": ["X1"],
    "tests/unit/proto/test_memfd.c: another_uid_cannot_make_it_writable": ["X2"],
    "tests/unit/daemon/test_registry.c: generations_never_repeat": ["X6"],
    "tests/unit/daemon/test_lease.c: many_holds_on_one_segment_end_one_by_one": ["X6"],
    "tests/unit/daemon/test_handlers.c: the_end_of_a_session_returns_everything": ["X5"],
    "tests/integration/test_bulk.py: test_rank_beyond_the_limit": ["P22"],
    "tests/integration/test_publish_refusals.py: test_layouts": ["P22"],
    "tests/integration/test_publish_refusals.py: test_layouts_at_the_edge": ["P22"],
    "tests/integration/test_publish_refusals.py: test_data_types_that_are_none": ["P20"],
    "tests/integration/test_publish_refusals.py: test_device_memory_is_not_built": ["X3"],
    "tests/integration/test_fallbacks.py: test_memory_is_private_to_its_owner": ["X2"],
    "tests/integration/test_death.py: test_killed_after_each_step": ["X5"],
    "tests/integration/test_death.py: test_reader_of_memory_whose_owner_is_killed": ["X5"],
}


def exists(test: str) -> bool:
    """Whether a test of the table is there."""
    file, _, name = test.partition(": ")
    path = ROOT / file
    if not path.is_file():
        return False
    if not name:
        return True
    pattern = rf"TT_TEST\(\w+, {name}\b" if file.endswith(".c") else rf"^def {name}\("
    return re.search(pattern, path.read_text(), re.MULTILINE) is not None


def marked() -> Iterator[tuple[str, str, list[str]]]:
    """(file, test, rules) of each test of this folder that says so."""
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                rules = _rules_of(node)
                if rules:
                    yield path.name, node.name, rules


def _rules_of(function: ast.FunctionDef) -> list[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(".dlpack_rule"):
            return [ast.literal_eval(argument) for argument in decorator.args]
    return []


def rules_in_name(test: str) -> list[str]:
    """`test_p4_p5_...` is about P4 and P5."""
    found = re.match(r"test((?:_[pcx]\d+)+)_", test)
    return found.group(1).upper().strip("_").split("_") if found else []


@functools.cache
def tests_by_rule() -> dict[str, dict[str, list[str]]]:
    """Of each rule the files that prove it, with their tests."""
    found: dict[str, dict[str, list[str]]] = {rule: defaultdict(list) for rule in RULES}
    for file, name, rules in marked():
        for rule in rules:
            found[rule][f"tests/python/{file}"].append(name)
    for test, rules in ELSEWHERE.items():
        file, _, name = test.partition(": ")
        for rule in rules:
            found[rule][file].extend([name] if name else [])
    return found
