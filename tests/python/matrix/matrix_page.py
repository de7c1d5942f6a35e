# SPDX-License-Identifier: Apache-2.0
"""The page of the matrix, docs/matrix.md, as text; and its tables read back."""

from __future__ import annotations

from matrix_cases import CASES
from matrix_frameworks import FRAMEWORKS
from matrix_run import Matrix

HEAD = """\
# Matrix

<!-- tests/python/matrix writes this page when TIDL_WRITE_MATRIX=1 is set, and else compares it. -->

What each framework makes of tensors that another one published, in two processes. A test runs all
of it: every ordered pair of frameworks, every data type, every layout. "Same memory" is proven by
the inode of the shared segment, and the offset in it, at the address that the framework itself
tells, on both ends. Nothing is copied without a word: what is not the same memory is refused, and
the reason is below. [frameworks.md](frameworks.md) says how to use each of them.
"""

PAIRS = """\
## Pairs

Rows publish, columns take. A cell counts the tensors below that the row's framework can hold, all
of them published without a copy, and of those how many the column's framework takes in the same
memory. It refuses the others. In every cell the values were compared, what the consumer can write
to was written and seen by the publisher, and each end went first once.
"""

TENSORS = """\
## Tensors

`yes`: taken, and published, in the same memory. Otherwise the code of the error that says why not,
or its class where the framework's own `from_dlpack` raises it. Rows that do not name a data type
are float32.
"""

USE = """\
## Reading, writing, copies

*Attached for reading*: how it takes a tensor that was attached with `access="read"`. *Writes*:
whether the framework itself can write to memory that was attached with `access="write"`. *Own
memory*: what publishing a tensor in the framework's own memory does.
"""

REASONS = """\
## Reasons

What the refusals say, framework by framework.
"""

OWN_IMPORT = ("onnxruntime", "warp")  # take tensors by their own from_dlpack


def render(matrix: Matrix) -> str:
    sections = [HEAD, versions(matrix), PAIRS, pairs(matrix), TENSORS, tensors(matrix)]
    sections += [USE, use(matrix), REASONS, *reasons(matrix)]
    return "\n".join(sections)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def versions(matrix: Matrix) -> str:
    rows = []
    for framework in FRAMEWORKS:
        version = matrix.versions.get(framework, "")
        text = version or f"not in this run: {matrix.missing[framework]}"
        rows.append([framework, text, FRAMEWORKS[framework].note])
    return table(["framework", "version", "here"], rows)


def pairs(matrix: Matrix) -> str:
    rows = []
    for publisher in FRAMEWORKS:
        row = [publisher]
        for consumer in FRAMEWORKS:
            pair = matrix.pairs.get((publisher, consumer))
            if pair is None:
                missing = publisher if publisher in matrix.missing else consumer
                row.append(matrix.missing[missing])
                continue
            taken = sum(answer[0] == "taken" for answer in pair.taken.values())
            row.append(f"{taken} of {len(pair.taken)}")
        rows.append(row)
    return table(["publishes \\ takes", *FRAMEWORKS], rows)


def tensors(matrix: Matrix) -> str:
    rows = []
    for number, case in enumerate(CASES):
        row = [case.label]
        for framework in FRAMEWORKS:
            answers = matrix.published.get(framework)
            if answers is None:
                row.append(matrix.missing[framework])
            elif answers[number][0] == "published":
                row.append("yes")
            else:
                row.append(answers[number][2] or answers[number][1])
        rows.append(row)
    legend = "".join(f"- {case.label}: {case.text}\n" for case in CASES if case.label != case.dtype)
    return table(["tensor", *FRAMEWORKS], rows) + "\n" + legend


def use(matrix: Matrix) -> str:
    header = ["framework", "attached for reading", "writes", "own memory"]
    rows = []
    for framework, kind in FRAMEWORKS.items():
        if framework in matrix.missing:
            rows.append([framework, *[matrix.missing[framework]] * 3])
            continue
        plain, _ = matrix.pairs[framework, framework].readonly
        vouched = "`tensor.unflagged()`" if framework in OWN_IMPORT else "`readonly_ok=True`"
        reading = "as it is" if plain[0] == "taken" else f"with {vouched}"
        writes = "yes" if kind.can_write else "no"
        if kind.unwritten:
            writes += f", but not {', '.join(sorted(kind.unwritten))}"
        is_copied, reason = matrix.own[framework]
        rows.append([framework, reading, writes, f"one copy ({reason})" if is_copied else "same"])
    return table(header, rows)


def reasons(matrix: Matrix) -> list[str]:
    sections = []
    for framework in FRAMEWORKS:
        lines = [f"### {framework}\n\n"]
        if framework in matrix.missing:
            lines.append(f"Not in this run: {matrix.missing[framework]}.\n")
        else:
            rows = [
                [case.label, answer[3]]
                for case, answer in zip(CASES, matrix.published[framework], strict=True)
                if answer[0] == "refused"
            ]
            if rows:
                lines.append(table([f"not in {framework}", "because"], rows))
            else:
                lines.append("Refuses none of these.\n")
        sections.append("".join(lines))
    return sections


def cells(page: str) -> dict[tuple[str, str, str], str]:
    """Every cell of the page's tables, by (corner, row, column)."""
    found = {}
    header: list[str] = []
    for line in page.splitlines():
        if not line.startswith("| "):
            header = []
            continue
        words = [word.strip() for word in line.strip("|").split(" | ")]
        if not header:
            header = words
        elif words[0] != "---":
            for column, text in zip(header[1:], words[1:], strict=True):
                found[header[0], words[0], column] = text
    return found
