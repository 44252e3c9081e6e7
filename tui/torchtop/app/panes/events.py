"""Events: what happened to the session, with the time since its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtop.app.format import clock, known, rank_count, size
from torchtop.app.panes import failure
from torchtop.app.panes.parts import SEVERITIES, items
from torchtop.app.text import Row, Span, clean, cut_words, fit, pad
from torchtop.app.view import View
from torchtop.session.state import Snapshot


def aside(view: View, width: int) -> list[Span]:
    """Lines that could not be read."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.bad_lines:
        return []
    return [(f"{snapshot.bad_lines} unreadable lines", "warn")]


def body(view: View, width: int, height: int) -> list[Row]:
    """The last events, newest at the bottom."""
    snapshot = view.snapshot
    if snapshot is None or height <= 0:
        return []
    lines = told(snapshot)
    rows = [_row(at_s, text, style, width) for at_s, text, style in lines]
    return rows[-height:] or [fit([("nothing has happened yet", "dim")], width)]


def _row(at_s: float, text: str, style: str, width: int) -> Row:
    told = cut_words(text, width - 8)
    return fit([(pad(clock(at_s), 7), "faint"), (" ", ""), (told, style)], width)


def told(snapshot: Snapshot) -> list[tuple[float, str, str]]:
    """(seconds since the start, text, style) of each event, oldest first."""
    start = _start(snapshot)
    lines: list[tuple[int, str, str]] = []
    if problem := snapshot.meta.get("problem"):
        lines.append((start, f"the session is incomplete: {clean(problem, 200)}", "warn"))
    lines += [(start, clean(line, 600), "warn") for line in items(snapshot.meta, "warnings")]
    ranks: list[int] = []
    for event in snapshot.events:
        stamp = int(known(event.get("mono_ns")) or 0)
        if event.get("kind") == "process" and event.get("role") == "rank":
            ranks.append(stamp)
            continue
        text, style = _words(event)
        if text:
            lines.append((stamp, clean(text), style))
    if ranks:
        lines.append((max(ranks), f"{rank_count(len(ranks))} up", ""))
    for stamp, kind, severity in snapshot.verdict_changes:
        _, word, style = SEVERITIES.get(severity, SEVERITIES["unknown"])
        named = f" {clean(kind, 40)}" if kind.upper() != word else ""
        lines.append((stamp, f"verdict{named}: {word.lower()}", style))
    for stamp, kind, severity in snapshot.finding_changes:
        _, word, style = SEVERITIES.get(severity, ("", "over", "dim"))
        lines.append((stamp, f"finding {clean(kind, 60)}: {word.lower()}", style))
    lines.sort(key=lambda line: line[0])
    return [((stamp - start) / 1e9, text, style) for stamp, text, style in lines]


def _start(snapshot: Snapshot) -> int:
    stamps = [e.get("mono_ns") for e in snapshot.events if e.get("kind") == "header"]
    return min((s for s in stamps if isinstance(s, int)), default=snapshot.now_ns)


def _words(event: Mapping[str, Any]) -> tuple[str, str]:
    """One event in words, and its style."""
    kind = event.get("kind")
    if kind == "header":
        return f"supervisor started on {clean(event.get('host'), 60)}", ""
    if kind == "process":
        return f"{clean(event.get('role'), 20)} started, pid {event.get('process_pid')}", "dim"
    if kind == "stop":
        mode = {"soft": "soft stop", "stop": "stop", "kill": "kill"}.get(
            str(event.get("mode")), "stop"
        )
        why = clean(event.get("why") or "user", 20)
        return f"{mode} asked ({why})", "note"
    if kind == "escalated":
        return f"stop escalated to {clean(event.get('stage'), 20)}", "warn"
    if kind == "leftover":
        return f"cannot be ended: pid {event.get('process_pid')} {clean(event.get('name'), 40)}", (
            "critical"
        )
    if kind == "stacks":
        return f"stacks of {rank_count(len(items(event, 'ranks')))} taken", "dim"
    if kind == "gpu_held":
        pids = " ".join(clean(pid, 12) for pid in items(event, "process_pids")[:4])
        return f"GPU memory of ended processes is still held: {pids}", "warn"
    if kind == "rank_exit":
        how, code = event.get("signal"), event.get("code")
        told = f" by {clean(how, 30)}" if how else "" if code is None else f": status {code}"
        return f"rank {event.get('rank')} ended{told}", "warn" if how or code else "dim"
    if kind == "exit":
        cause = clean(event.get("cause"), 40)
        good = cause in failure.IN_ORDER
        message = clean(event.get("message") or "", 600)
        return f"exit: {cause}{': ' + message if message else ''}", "ok" if good else "critical"
    if kind == "hint":
        return clean(event.get("message") or "", 600), "note"
    if kind in ("disk", "log_cut"):
        return _disk_words(event)
    if kind == "end":
        return f"session {clean(event.get('status'), 20)}", "value"
    return _noted(event)


def _noted(event: Mapping[str, Any]) -> tuple[str, str]:
    """What a rank has noted, in words, and its style."""
    if event.get("kind") == "annotation":
        return clean(event.get("text") or "", 300), "value"
    if event.get("kind") == "not_finite":
        told = f"{clean(event.get('name'), 60)} is {clean(event.get('value'), 10)}"
        place = f"rank {clean(event.get('rank'), 8)}, step {clean(event.get('step'), 20)}"
        return f"{told} on {place}", "critical"
    return "", ""


def _disk_words(event: Mapping[str, Any]) -> tuple[str, str]:
    if event.get("kind") == "log_cut":
        return f"{clean(event.get('file'), 80)} was too long: its middle was removed", "warn"
    free = size(event.get("free_bytes"))
    if event.get("level") == "full":
        return f"the disk has {free} left: nothing is recorded until there is room", "critical"
    return f"the disk has {free} left", "warn" if event.get("level") == "low" else "ok"
