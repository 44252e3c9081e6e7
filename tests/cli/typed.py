"""The command line within this process: quick, for what needs no process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.cli import main


class Typed:
    """Types commands in a directory, with a state directory of its own.

    Args:
        home: the state directory.
        cwd: the current directory.
        monkeypatch: undoes both.
        capture: takes what is printed.
    """

    def __init__(
        self,
        home: Path,
        cwd: Path,
        monkeypatch: pytest.MonkeyPatch,
        capture: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("TORCHTOP_HOME", str(home))
        monkeypatch.chdir(cwd)
        self._capture = capture

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Run ``torchtop WORDS``: its status, standard output, and standard error."""
        self._capture.readouterr()
        try:
            status = main(list(words))
        except SystemExit as ended:  # argparse has complained
            status = int(ended.code or 0)
        told = self._capture.readouterr()
        return status, told.out, told.err
