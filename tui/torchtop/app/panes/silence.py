"""Ranks that have passed no marker for long: hung, or busy with something that has no marker."""

from __future__ import annotations

from typing import NamedTuple

from torchtop.app.format import duration
from torchtop.app.panes.parts import verdict_of
from torchtop.app.text import Span, clean
from torchtop.diagnose.words import doing_after
from torchtop.session.state import Snapshot

SILENT_AFTER_S = 10.0
"""Above the usual evaluation or checkpoint between two steps; below it nothing is said."""

WARN_AFTER_S = 30.0
"""From here on it is said as a warning."""

_SECONDS_BELOW = 120.0


class Silence(NamedTuple):
    """One rank's."""

    rank: int
    doing: str
    age_s: float


def silences(snapshot: Snapshot | None) -> list[Silence]:
    """The silent ranks of a live run, in order of rank."""
    if snapshot is None or not snapshot.live:
        return []
    return [
        Silence(rank.rank, _doing(rank.marker), rank.marker_age_s)
        for rank in snapshot.ranks
        if rank.marker_age_s is not None and rank.marker_age_s > SILENT_AFTER_S
    ]


def last_seen(snapshot: Snapshot) -> dict[int, str]:
    """Where each rank was last seen, and how long ago."""
    return {
        rank.rank: words(Silence(rank.rank, _doing(rank.marker), rank.marker_age_s))
        for rank in snapshot.ranks
        if rank.marker_age_s is not None
    }


def _doing(marker: str | None) -> str:
    return clean(doing_after(marker or "somewhere"), 60)


def words(silence: Silence, cells: int | None = None) -> str:
    """A rank's silence as a sentence without its subject.

    Args:
        silence: the rank's.
        cells: where the sentence is longer, the time comes first, and its end may be cut.
    """
    age = f"{silence.age_s:.0f} s" if silence.age_s < _SECONDS_BELOW else duration(silence.age_s)
    told = f"last seen {silence.doing}, {age} ago"
    return told if cells is None or len(told) <= cells else f"silent {age}, {silence.doing}"


def line(snapshot: Snapshot) -> list[Span]:
    """All silences in one line; empty when there are none, or a verdict tells of the hang."""
    found = silences(snapshot)
    if not found or verdict_of(snapshot).get("kind") == "HUNG":
        return []
    worst = max(found, key=lambda silence: silence.age_s)
    style = "warn" if worst.age_s >= WARN_AFTER_S else "note"
    who = f"rank {worst.rank}"
    if len(found) > 1:
        every = len(found) == len(snapshot.ranks)
        who = f"{'all' if every else len(found)} ranks silent; rank {worst.rank}"
    label = " ▲ SILENT " if style == "warn" else " ○ SILENT "
    return [(label, f"chip.{style}"), ("  ", ""), (f"{who} {words(worst)}", style)]
