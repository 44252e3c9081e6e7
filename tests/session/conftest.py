"""What the tests of sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own; it is not there yet."""
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
