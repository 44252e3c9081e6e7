"""The failure card: which rank was first, why, and the end of its traceback and log."""

from __future__ import annotations

from typing import Any

from torchtop.app.format import count, duration
from torchtop.app.panes.parts import items
from torchtop.app.text import Row, Span, clean, fit
from torchtop.session.state import Snapshot

IN_ORDER = frozenset({"completed", "stopped", "duration", "steps"})
"""Exit causes that are no failure."""

_WORDS = {
    "exception": "raised an exception",
    "signal": "was ended by a signal",
    "exit_code": "left with a failure status",
    "out_of_memory": "ran out of memory",
    "launcher_killed": "torchrun was killed from outside",
    "launch_failed": "could not be launched",
    "lost": "the supervisor is gone and left no end",
}


def failed(snapshot: Snapshot) -> bool:
    """Whether the session ended otherwise than it was meant to."""
    cause = (snapshot.exit or {}).get("cause")
    return snapshot.status == "failed" or (isinstance(cause, str) and cause not in IN_ORDER)


def sentence(snapshot: Snapshot) -> str:
    """The cause in words."""
    end = snapshot.exit or {}
    cause = str(end.get("cause") or "")
    words = _WORDS.get(cause, clean(cause or "failed", 40))
    rank = end.get("rank")
    who = f"rank {rank} " if isinstance(rank, int) else ""
    detail = _detail(end)
    return f"{who}{words}{detail}"


def _detail(end: Any) -> str:
    if end.get("signal"):
        return f" ({clean(end['signal'], 20)})"
    code = end.get("code")
    return f" (status {code})" if isinstance(code, int) and end.get("cause") == "exit_code" else ""


def card(snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """The card's lines: cause, message, then as much of traceback and log as there is room for."""
    end = snapshot.exit or {}
    steps = (snapshot.analysis or {}).get("steps")
    after = f"after {duration(snapshot.elapsed_s)}"
    if steps:
        after += f" and {count(steps)} steps"
    title: list[Span] = [
        (" ✗ FAILED ", "chip.critical"),
        ("  " + sentence(snapshot), "value"),
        ("  " + after, "dim"),
    ]
    rows = [fit(title, width)]
    if end.get("message"):
        rows.append(fit([("   ", ""), (clean(end["message"], 600), "critical")], width))
    room = height - len(rows)
    trace = [clean(line, 600) for line in str(end.get("traceback") or "").splitlines() if line]
    log = [clean(line, 600) for line in items(end, "log_tail") if str(line).strip()]
    text = trace or log
    rows += [fit([("   " + line, "dim")], width) for line in text[-room:]] if room > 0 else []
    return rows[:height]
