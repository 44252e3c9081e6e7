"""A line that counts up on a terminal, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from torchtop.commands import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A time that goes on by half a second whenever it is asked for."""
    times = [0.0]

    def now() -> float:
        times[0] += 0.5
        return times[0]

    monkeypatch.setattr(progress.time, "monotonic", now)
    return times


def test_on_a_terminal_it_counts_up_and_goes_away(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = progress.Progress("analysing x")
    for part in (0.0, 0.25, 0.5, 7.0):
        told(part)
    told.end()

    text = capsys.readouterr().err
    assert "analysing x:" in text
    assert "50 %" in text
    assert "100 %" in text
    assert text.endswith(" \r")


def test_what_is_soon_done_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = progress.Progress("analysing x")
    told(0.5)
    told.end()

    assert capsys.readouterr().err == ""


def test_a_file_gets_no_progress(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    told = progress.Progress("analysing x")
    for _ in range(9):
        told(0.5)
    told.end()

    assert capsys.readouterr().err == ""
