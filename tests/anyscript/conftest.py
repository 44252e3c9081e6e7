from __future__ import annotations

from pathlib import Path

import pytest

from anyscript.visited import Visited
from launch.conftest import state_home
from probe.staged import Stage

__all__ = ["folder", "session", "state_home"]


@pytest.fixture
def session(tmp_path: Path) -> Visited:
    return Visited(Stage.make(tmp_path / "session"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's own."""
    made = tmp_path / "project"
    made.mkdir()
    return made
