"""The header and the footer line."""

from __future__ import annotations

from collections.abc import Mapping

from torchtop.app.format import clock, duration, known, percent
from torchtop.app.panes.failure import failed
from torchtop.app.panes.parts import child, joined, verdict_of
from torchtop.app.text import Row, Span, clean, cut, fit, row_width, spread
from torchtop.app.view import View
from torchtop.session.state import Snapshot

_STATUS: dict[str, tuple[str, str]] = {
    "idle": ("○", "dim"),
    "starting": ("○", "note"),
    "running": ("●", "ok"),
    "stopping": ("○", "warn"),
    "done": ("✓", "ok"),
    "failed": ("✗", "critical"),
    "stopped": ("■", "note"),
    "lost": ("✗", "critical"),
}


def header(view: View, width: int) -> Row:
    """What is shown: the session, its status and age, and how far the data can be trusted."""
    snapshot = view.snapshot
    if snapshot is None:
        return fit([(" torchtop ", "focus"), ("  reading ...", "dim")], width)
    parts = joined(_session(snapshot, width), "  ")
    return spread([(" torchtop ", "focus"), (" ", ""), *parts], _marks(view, snapshot), width)


def _session(snapshot: Snapshot, width: int) -> list[list[Span]]:
    meta = snapshot.meta
    symbol, style = _STATUS[snapshot.status]
    word = "deleted" if snapshot.deleted else snapshot.status
    status: list[Span] = [(f"{symbol} {word}", style)]
    if snapshot.status == "idle":
        return [status, [("no session: pick a workload", "dim")]]
    name = clean(meta.get("name") or meta.get("workload") or meta.get("id") or "session", 200)
    workload = clean(meta.get("workload") or "", 200)
    shown = cut(name, max(12, width // 4))
    parts: list[list[Span]] = [[(shown, "value")]]
    if workload and workload != name and width >= 100:
        parts.append([(cut(workload, width // 5), "dim")])
    parts += [status, [(duration(snapshot.elapsed_s), "")]]
    world = known(meta.get("nproc")) or len(snapshot.ranks)
    if world:
        parts.append([(f"{world:.0f} rank{'s' if world != 1 else ''}", "")])
    if meta.get("device"):
        parts.append([(clean(meta["device"], 10), "dim")])
    probe = child(snapshot.analysis, "probe")
    if probe.get("disabled"):
        parts.append([("probe off", "warn")])
    elif known(probe.get("cost_share")) is not None:
        parts.append([("probe ", "dim"), (percent(probe.get("cost_share")), "")])
    return parts


def _marks(view: View, snapshot: Snapshot) -> list[Span]:
    """What the eye must not miss: replay, pause, old data, unreadable lines."""
    marks: list[list[Span]] = []
    if view.replay:
        at, length = clock(view.replay.at_s), clock(view.replay.length_s)
        speed = f" at {view.replay.speed:g}x" if view.replay.speed != 1 else ""
        state = speed if view.replay.playing else " paused"
        marks.append([(" REPLAY ", "chip.note"), (f" {at} of {length}{state}", "")])
    if view.paused and not view.replay:
        marks.append([(" PAUSED ", "chip.warn")])
    age = snapshot.analysis_age_s
    if snapshot.live and age is not None and age > view.stale_after_s:
        marks.append([(f"{duration(age)} old", "warn")])
    if snapshot.newer_schema:
        marks.append([("written by a newer torchtop", "warn")])
    if snapshot.meta.get("problem"):
        marks.append([("no session.json", "warn")])
    if snapshot.live and (level := _disk_level(snapshot)) != "ok":
        marks.append([(f"disk {level}", "critical" if level == "full" else "warn")])
    if snapshot.bad_lines:
        marks.append([(f"{snapshot.bad_lines} bad lines", "warn")])
    if view.interval_s != 1.0 and not view.replay:
        marks.append([(f"every {view.interval_s:g} s", "dim")])
    spans = joined(marks, "  ")
    return [("  ", ""), *spans, (" ", "")] if spans else []


def _disk_level(snapshot: Snapshot) -> str:
    """How much room the fullest node's disk has: ``ok``, ``low`` or ``full``."""
    last = {e.get("host"): e.get("level") for e in snapshot.events if e.get("kind") == "disk"}
    return next((level for level in ("full", "low") if level in last.values()), "ok")


_LIVE_FIRST = ("help", "quit", "stop", "restart", "logs", "zoom", "workload", "save", "pause")
_OF_A_SESSION = frozenset(
    {"stop", "restart", "stacks", "inspect", "save", "options", "logs", "events"}
)
_ENDED_FIRST = ("help", "quit", "workload", "pick", "start", "sessions", "logs", "zoom", "save")
_REPLAY_FIRST = ("help", "quit", "pause", "10 s back", "10 s on", "end", "faster", "logs", "zoom")
_OF_A_REPLAY = frozenset(
    {"10 s back", "10 s on", "10 min back", "10 min on", "start of it", "end", "faster", "slower"}
)
_IDLE_FIRST = ("help", "quit", "workload", "pick", "sessions", "zoom", "older session")


def footer(view: View, width: int, keys: Mapping[str, str]) -> Row:
    """What is being done, then the keys that matter most now, in a fixed order.

    Args:
        view: what is drawn.
        width: cells.
        keys: key by name of what it does.
    """
    spans: list[Span] = [(" ", "")]
    if view.busy:
        spans += [(clean(view.busy, 200), "accent"), ("   ", "")]
    live = view.snapshot is not None and (view.snapshot.live or view.snapshot.status == "lost")
    first: tuple[str, ...] = _LIVE_FIRST if live else _IDLE_FIRST if view.idle else _ENDED_FIRST
    useless = {"start"} if live else _OF_A_SESSION if view.idle else {"stop", "stacks", "inspect"}
    if view.snapshot is not None and failed(view.snapshot):
        first = ("failure", *first)
    else:
        useless = useless | {"failure"}
    kind = verdict_of(view.snapshot).get("kind")
    if kind in ("HUNG", "SYNC"):
        first = ("stacks" if kind == "HUNG" else "inspect", *first)
    if view.replay:
        first, useless = _REPLAY_FIRST, {"start", "stop", "restart", "stacks", "inspect", "failure"}
    else:
        useless = useless | _OF_A_REPLAY
    keys = {name: key for name, key in keys.items() if name not in useless}
    room = width - row_width(spans) + 1
    chosen: set[str] = set()
    for name in (*first, *keys):
        cost = len(keys.get(name, "")) + len(name) + 3
        if name in keys and name not in chosen and cost <= room:
            chosen.add(name)
            room -= cost
    for name, key in keys.items():
        if name in chosen:
            spans += [(key, "key"), (f" {name}  ", "dim")]
    return fit(spans, width)
