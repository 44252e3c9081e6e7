from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launch.supervised import Run, launch


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of the test's own."""
    home = tmp_path / "state"
    monkeypatch.setenv("TORCHTOP_HOME", str(home))
    return home


@pytest.fixture
def run(state_home: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start scripts as sessions; whatever a test leaves running is ended."""
    started: list[Run] = []

    def start(script: str, *args: str, **spec: object) -> Run:
        started.append(launch(tmp_path, script, *args, **spec))
        return started[-1]

    yield start
    for session in started:
        session.clean()
