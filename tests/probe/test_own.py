"""How much of a step lies in phases of the script's own."""

from __future__ import annotations

from typing import Any

from torchtop.probe.clock import Mark
from torchtop.probe.own import OwnPhases

MS = 1_000_000


def step(*marks: str, device: bool = True) -> list[Mark]:
    """Markers a millisecond apart: ``+name`` begins a phase and ``-`` ends the innermost."""
    made, stack = [], tuple[str, ...](marks[0].split())
    for place, text in enumerate(marks[1:]):
        mark = Mark()
        mark.code, mark.host_ns = text, place * MS
        if text[0] in "+-":
            before = stack
            stack = (*stack, text[1:]) if text[0] == "+" else stack[:-1]
            mark.code, mark.extra = ("P0" if text[0] == "+" else "P1"), (before, stack)
        mark.device_ns = place * MS if device else None
        made.append(mark)
    return made


def told(phases: OwnPhases, *marks: str, **options: Any) -> dict[str, int] | None:
    return phases.of(step(*marks, **options))


def test_a_phase_takes_the_time_between_its_ends() -> None:
    phases = OwnPhases()

    assert told(phases, "", "O1", "D1", "+augment", "B0", "-", "O1") == {"augment": 2000}
    assert told(phases, "", "O1", "+a", "-", "+a", "B0", "-", "O1") == {"a": 3000}
    assert told(phases, "", "O1", "D1", "O1") is None


def test_nested_ones_count_in_each_other() -> None:
    assert told(OwnPhases(), "", "O1", "+a", "+b", "D1", "-", "D0", "-", "O1") == {
        "a": 5000,
        "b": 2000,
    }
    assert told(OwnPhases(), "", "O1", "+a", "+a", "-", "-", "O1") == {"a": 3000}


def test_one_that_goes_on_over_the_end_of_a_step_counts_in_both() -> None:
    phases = OwnPhases()

    assert told(phases, "", "O1", "D1", "+train", "B0", "O1") == {"train": 2000}
    assert told(phases, "train", "O1", "D1", "B0", "O1") == {"train": 3000}
    assert told(phases, "train", "O1", "D1", "-", "B0", "O1") == {"train": 2000}
    assert told(phases, "", "O1", "D1", "O1") is None


def test_a_step_that_is_not_measured_is_followed_all_the_same() -> None:
    phases = OwnPhases()

    assert told(phases, "", "O1", "+train", "O1", device=False) is None
    assert told(phases, "train", "O1", "D1", "O1") == {"train": 2000}


def test_steps_that_were_lost_mislead_for_no_longer_than_to_the_next_marker() -> None:
    phases = OwnPhases()
    told(phases, "", "O1", "+lost", "O1")

    assert told(phases, "", "O1", "D1", "+a", "-", "O1") == {"a": 1000}
    assert told(phases, "", "O1", "D1", "O1") is None
