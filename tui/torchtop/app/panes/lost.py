"""A session without a supervisor, or without a directory: what that means, and what can be done."""

from __future__ import annotations

from torchtop.app.controller import LeftBehind
from torchtop.app.format import count, duration, known
from torchtop.app.text import Row, Span, clean, fit
from torchtop.app.view import View
from torchtop.session.state import Snapshot

_NAMED = 2
"""Processes that are named; the others are counted."""


def lines(view: View, width: int) -> list[Row]:
    """Two lines for a session that is lost; none for another."""
    snapshot = view.snapshot
    if snapshot is None or snapshot.status != "lost":
        return []
    spans = _deleted(snapshot) if snapshot.deleted else _lost(view, snapshot)
    return [fit(row, width) for row in spans]


def _lost(view: View, snapshot: Snapshot) -> list[list[Span]]:
    told = "  its supervisor is gone, without an end, "
    return [
        [(" ◆ LOST ", "chip.critical"), (told, "value"), (after(snapshot), "dim")],
        _left(view.left),
    ]


def after(snapshot: Snapshot) -> str:
    """How far a run had come: time, and steps where there are any."""
    steps = known((snapshot.analysis or {}).get("steps"))
    told = f"after {duration(snapshot.elapsed_s)}"
    return told + (f" and {count(steps)} steps" if steps else "")


def _left(left: tuple[LeftBehind, ...] | None) -> list[Span]:
    if left is None:
        return [(" · looking for processes of it that still run ...", "dim")]
    if not left:
        return [(" · no process of it is left on this machine", "dim")]
    return [
        (" · ", "dim"),
        ("x", "key"),
        (" ends what it has left here: ", "dim"),
        (named(left), "warn"),
    ]


def named(left: tuple[LeftBehind, ...]) -> str:
    """Processes by name and pid, the first few of them."""
    told = [f"{clean(process.name, 30)} (pid {process.pid})" for process in left[:_NAMED]]
    more = len(left) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _deleted(snapshot: Snapshot) -> list[list[Span]]:
    chip: Span = (" ◆ DELETED ", "chip.critical")
    supervisor = snapshot.unseen_supervisor
    if supervisor is None:
        return [
            [chip, ("  the session's directory was deleted", "value")],
            [(f" · what was seen of it {after(snapshot)} is all that is left", "dim")],
        ]
    return [
        [chip, ("  the session's directory was deleted; the run goes on, unseen", "value")],
        [(f" · its supervisor has pid {supervisor}: ", "dim"), ("x", "key"), (" stops it", "dim")],
    ]
