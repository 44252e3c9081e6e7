from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before Textual reads them: what a screen looks like must not depend on who runs the tests.
os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
for _name in [n for n in os.environ if n == "NO_COLOR" or n.startswith("TEXTUAL")]:
    del os.environ[_name]


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of each test's own: whoever runs the tests may have marked baselines."""
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "state"))
    return tmp_path / "state"
