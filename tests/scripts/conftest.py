# SPDX-License-Identifier: Apache-2.0
"""Fixtures, and the way to the modules under test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts_support import ROOT, Project, make_project

sys.path.insert(0, str(ROOT / "scripts" / "lib"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path / "project")
