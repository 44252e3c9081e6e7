"""A verdict that stands gives way only to clear evidence."""

from __future__ import annotations

import pytest

from torchtop.diagnose.candidate import Candidate
from torchtop.diagnose.hysteresis import Held, choose, severity
from torchtop.diagnose.thresholds import DEFAULT


def held(kind: str, level: str, rank: int | None = None, phase: str | None = None) -> Held:
    return Held(kind, rank, phase, level, 0, 0)


def told(shares: list[float]) -> list[str | None]:
    """The severities that one candidate is given as its share changes."""
    stands: Held | None = None
    levels: list[str | None] = []
    for share in shares:
        chosen = choose([Candidate("DATA", share)], stands, DEFAULT)
        levels.append(chosen[1] if chosen else None)
        stands = held("DATA", chosen[1]) if chosen else held("COMPUTE-BOUND", "ok")
    return levels


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.049, None), (0.05, "note"), (0.099, "note"), (0.1, "warn"), (0.2, "critical")],
)
def test_the_levels_without_a_past(share: float, level: str | None) -> None:
    assert severity(share, None, DEFAULT) == level


def test_nine_to_eleven_percent_does_not_flap() -> None:
    assert told([0.08, 0.09, 0.11, 0.09, 0.11, 0.09, 0.07]) == ["note", "note", *["warn"] * 5]


def test_a_warning_is_left_below_six_percent() -> None:
    assert told([0.12, 0.061, 0.059, 0.08]) == ["warn", "warn", "note", "note"]


def test_five_and_twenty_percent_do_not_flap() -> None:
    assert told([0.051, 0.049, 0.051, 0.039, 0.049]) == ["note", "note", "note", None, None]
    assert told([0.21, 0.19, 0.21, 0.15]) == ["critical", "critical", "critical", "warn"]


def test_a_near_tie_does_not_take_the_headline() -> None:
    ranked = [Candidate("COMM", 0.30), Candidate("DATA", 0.25)]

    chosen = choose(ranked, held("DATA", "critical"), DEFAULT)

    assert chosen is not None
    assert chosen[0].kind == "DATA"


def test_a_clear_lead_takes_the_headline() -> None:
    ranked = [Candidate("COMM", 0.30), Candidate("DATA", 0.20)]

    chosen = choose(ranked, held("DATA", "critical"), DEFAULT)

    assert chosen is not None
    assert chosen[0].kind == "COMM"


def test_the_smaller_of_two_notes_gives_way() -> None:
    ranked = [Candidate("STRAGGLER", 0.09, 1), Candidate("COMM", 0.05)]

    assert choose(ranked, held("COMM", "note"), DEFAULT) == (ranked[0], "note")


def test_a_note_gives_way_to_a_warning() -> None:
    ranked = [Candidate("DATA", 0.11), Candidate("COMM", 0.09)]

    chosen = choose(ranked, held("COMM", "note"), DEFAULT)

    assert chosen == (ranked[0], "warn")


def test_stragglers_of_different_rank_are_different_verdicts() -> None:
    assert not held("STRAGGLER", "warn", rank=1).is_same("STRAGGLER", 2)
    assert held("LAUNCH", "warn", rank=1).is_same("LAUNCH", None)
