"""The catalog, shown while no session is: what can be started, and with which key."""

from __future__ import annotations

from torchtop.app.text import Row, Span, clean, cut, fit, pad
from torchtop.app.view import View


def aside(view: View, width: int) -> list[Span]:
    """How to get at the others."""
    return [("w", "key"), (" all, with a filter", "dim")]


def body(view: View, width: int, height: int) -> list[Row]:
    """A line a workload."""
    if not view.catalog:
        return [fit([("no workloads found", "dim")], width)]
    longest = max(len(entry.name) for entry in view.catalog)
    name = min(max(12, longest), max(12, width // 3), 40)
    rows = []
    for entry in view.catalog[:height]:
        key = str(entry.key) if entry.key is not None else " "
        problem = entry.problem
        text = clean(problem or entry.summary, 300)
        rows.append(
            fit(
                [
                    (f" {key}  ", "key"),
                    (pad(cut(clean(entry.name, 100), name), name), "" if not problem else "faint"),
                    ("  ", ""),
                    (text, "warn" if problem else "dim"),
                ],
                width,
            )
        )
    if len(view.catalog) > height and rows:
        hidden = len(view.catalog) - height + 1
        rows[-1] = fit([(f"    and {hidden} more: w", "dim")], width)
    return rows
