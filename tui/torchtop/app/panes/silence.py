"""Ranks that have passed no marker for long: hung, or busy with something that has no marker."""

from __future__ import annotations

from typing import NamedTuple

from torchtop.app.format import duration
from torchtop.app.panes.parts import PHASE_NAMES
from torchtop.app.text import Span
from torchtop.session.records import MARKERS
from torchtop.session.state import Snapshot

SILENT_AFTER_S = 10.0
"""Above the usual evaluation or checkpoint between two steps; below it nothing is said."""

WARN_AFTER_S = 30.0
"""From here on it is said as a warning."""


class Silence(NamedTuple):
    """One rank's."""

    rank: int
    phase: str
    age_s: float


def silences(snapshot: Snapshot | None) -> list[Silence]:
    """The silent ranks of a live run, in order of rank."""
    if snapshot is None or not snapshot.live:
        return []
    return [
        Silence(rank.rank, phase_of(rank.marker), rank.marker_age_s)
        for rank in snapshot.ranks
        if rank.marker_age_s is not None and rank.marker_age_s > SILENT_AFTER_S
    ]


def phase_of(marker: str | None) -> str:
    """The phase that a rank is in after a marker, in words."""
    return PHASE_NAMES.get(MARKERS.get(marker or "", ""), "an unknown phase")


def words(silence: Silence) -> str:
    """A rank's silence as a sentence without its subject."""
    return f"last seen in {silence.phase}, {duration(silence.age_s)} ago"


def line(snapshot: Snapshot) -> list[Span]:
    """All silences in one line; empty when there are none."""
    found = silences(snapshot)
    if not found:
        return []
    worst = max(found, key=lambda silence: silence.age_s)
    style = "warn" if worst.age_s >= WARN_AFTER_S else "note"
    who = f"rank {worst.rank}"
    if len(found) > 1:
        every = len(found) == len(snapshot.ranks)
        who = f"{'all' if every else len(found)} ranks silent; rank {worst.rank}"
    label = " ▲ SILENT " if style == "warn" else " ○ SILENT "
    return [(label, f"chip.{style}"), ("  ", ""), (f"{who} {words(worst)}", style)]
