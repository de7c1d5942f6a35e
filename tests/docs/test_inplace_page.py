# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/in-place.md hold what they assert, and its table names every reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/in-place.md").read_text()
PACKAGE = Path(tidl.__file__).parent


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(example: str, tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIDL_")}
    environment["XDG_RUNTIME_DIR"] = str(tmp_path)
    environment["TIDL_DAEMON"] = str(PACKAGE / "bin/tidld")
    try:
        subprocess.run([sys.executable, "-c", example], env=environment, check=True, timeout=120)
    finally:
        subprocess.run([PACKAGE / "bin/tidlctl", "shutdown"], env=environment, timeout=30)


def test_every_reason_is_told() -> None:
    header = (ROOT / "include/tidl/publish.h").read_text()
    reasons = re.findall(r"TIDL_COPY_REASON_(\w+) = (\d+)", header)
    for word, number in reasons:
        if int(number) >= 6:
            assert f"`{word.lower()}`" in PAGE, word
