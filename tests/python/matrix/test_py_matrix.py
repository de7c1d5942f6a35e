# SPDX-License-Identifier: Apache-2.0
"""Every framework to every other one, over every data type and layout, in two processes.

What comes out is docs/matrix.md; `TIDL_WRITE_MATRIX=1` writes it anew.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from matrix_cases import CASES, expected
from matrix_frameworks import FRAMEWORKS
from matrix_page import cells, render
from matrix_run import FLOAT32, Matrix, Runner, absence
from matrix_worker import ones

import tidl

pytestmark = pytest.mark.frameworks

PAGE = Path(__file__).resolve().parents[3] / "docs/matrix.md"
HERE = [framework for framework in FRAMEWORKS if absence(framework) is None]
PAIRS = list(itertools.product(HERE, repeat=2))


@pytest.fixture(scope="module")
def matrix(
    session_client: tidl.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Matrix]:
    with ExitStack() as stack:
        yield Runner(session_client, tmp_path_factory.mktemp("package"), stack).run()


@pytest.mark.parametrize("publisher", HERE)
def test_publisher(matrix: Matrix, publisher: str) -> None:
    answers = matrix.published[publisher]
    assert len(answers) == len(CASES)
    for case, (kind, *details) in zip(CASES, answers, strict=True):
        if kind == "published":
            is_copied, (inode, _) = details
            assert not is_copied, case
            assert bool(inode) is bool(expected(case)), case
        else:
            assert details[2], case  # the reason
    assert matrix.own[publisher] == (True, "foreign")


@pytest.mark.parametrize(("publisher", "consumer"), PAIRS, ids=map("-".join, PAIRS))
class TestPair:
    def test_same_memory_or_a_reason(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        for number, (kind, *details) in matrix.pairs[publisher, consumer].taken.items():
            case = CASES[number]
            if kind == "taken":
                place, values = details
                assert values == expected(case), case
                assert place == matrix.published[publisher][number][2], case
            else:
                assert details[2], case

    def test_both_ends_agree(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        """A framework takes what it can publish, whoever published it."""
        for number, (kind, *details) in matrix.pairs[publisher, consumer].taken.items():
            its_own, *its_details = matrix.published[consumer][number]
            assert (kind == "taken") is (its_own == "published"), CASES[number]
            if kind == "refused":
                assert details == its_details

    def test_writes_are_seen(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        pair = matrix.pairs[publisher, consumer]
        framework = FRAMEWORKS[consumer]
        writable = [
            number
            for number, answer in pair.taken.items()
            if answer[0] == "taken"
            and framework.can_write
            and not {CASES[number].dtype, CASES[number].label} & framework.unwritten
        ]
        assert pair.written == writable
        for number, seen in zip(pair.written, pair.seen, strict=True):
            assert seen == ones(number), CASES[number]

    def test_own_memory_arrives(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        assert matrix.pairs[publisher, consumer].own == np.arange(12, dtype="float32").tobytes()

    def test_reading_attach(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        plain, vouched = matrix.pairs[publisher, consumer].readonly
        place = matrix.published[publisher][FLOAT32][2]
        assert vouched == ("taken", place, expected(CASES[FLOAT32]))
        if plain[0] == "taken":
            assert plain == vouched
        else:
            assert plain[1:3] == ("ReadOnlyError", "READ_ONLY")

    def test_either_end_goes_first(self, matrix: Matrix, publisher: str, consumer: str) -> None:
        pair = matrix.pairs[publisher, consumer]
        assert pair.is_let_go
        assert pair.after_consumer == expected(CASES[FLOAT32])
        assert pair.after_publisher == expected(CASES[FLOAT32])


def test_page_is_what_this_run_says(matrix: Matrix) -> None:
    """Word for word, where every framework is here; else what it says of those that are."""
    page = render(matrix)
    if os.environ.get("TIDL_WRITE_MATRIX"):
        PAGE.write_text(page)
    committed = PAGE.read_text()
    if set(matrix.missing) == {"cupy"}:
        assert committed == page
    known = cells(committed)
    for place, text in cells(page).items():
        if not set(place) & set(matrix.missing):
            assert known.get(place) == text, place
