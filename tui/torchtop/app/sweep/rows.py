"""A sweep as rows of styled text. Pure functions of ``sweep.json`` and of the run that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.app.charts.glyphs import UNICODE, Glyphs
from torchtop.app.format import NA, known, rate, short_size
from torchtop.app.text import Row, Span, clean, cut, pad, row_width, wrap
from torchtop.app.text import width as cells_of

Json = Mapping[str, Any]

_SEVERITY = {"ok": "ok", "note": "note", "warn": "warn", "critical": "critical"}
_STATUS = {"failed": "critical", "skipped": "dim", "running": "accent", "waiting": "dim"}
_BAR = 24
_NOTE_ROWS = 4


@dataclass(frozen=True)
class Seen:
    """What a screen shows of a sweep.

    Attributes:
        sweep: ``sweep.json``, or None before there is one.
        live: whether a process measures it.
        analysis: the last analysis of the session that runs, or None.
        elapsed_s: how long that has run.
        trouble: why nothing is measured, one line, or None.
    """

    sweep: Json | None = None
    live: bool = False
    analysis: Json | None = None
    elapsed_s: float | None = None
    trouble: str | None = None


def header(seen: Seen, cells: int) -> Row:
    """What is measured, how far it is, and how long it still takes."""
    sweep = seen.sweep or {}
    left: list[Span] = [(" sweep ", "title"), (clean(sweep.get("workload") or ""), "value")]
    right: list[Span] = [(_state(seen), "accent" if seen.live else "dim"), (" ", "")]
    gap = max(2, cells - row_width(left) - row_width(right))
    return (*left, (" " * gap, ""), *right)


def _state(seen: Seen) -> str:
    sweep = seen.sweep
    if sweep is None:
        return "starting" if seen.live else "not started"
    progress = sweep["progress"]
    done, left = progress["runs_done"], progress["runs_left"]
    runs = "1 run" if done == 1 else f"{done} runs"
    if not left:
        return f"done: {runs}"
    told = f"{runs}, at most {left} more"
    eta = known(progress.get("eta_s"))
    if not seen.live:
        return f"stopped: {told}"
    return told if eta is None else f"{told}, {_duration(eta)}"


def footer(seen: Seen, asking: bool, cells: int) -> Row:
    """The keys that mean something now."""
    if asking:
        keys = {"l": "leave, measuring goes on", "x": "stop", "Esc": "stay"}
    elif seen.live:
        keys = {"↑↓": "scroll", "x": "stop", "?": "help", "q": "quit"}
    else:
        keys = {"↑↓": "scroll", "?": "help", "q": "quit"}
    spans: list[Span] = []
    for key, what in keys.items():
        spans += [(f" {key}", "key"), (f" {what} ", "dim")]
    return tuple(spans)


def body(seen: Seen, cells: int, glyphs: Glyphs = UNICODE) -> list[Row]:
    """The table, then a waterfall for each cell that lost something, then what to know."""
    rows: list[Row] = []
    if seen.trouble:
        rows += [(("", ""),), ((f" {clean(seen.trouble)}", "critical"),)]
    sweep = seen.sweep
    if sweep is None:
        return rows
    rows += [((" ", ""),), *table(seen, sweep, cells)]
    for cell in sweep["cells"]:
        rows += waterfall(cell, cells, glyphs)
    if sweep["notes"]:
        rows.append(((" ", ""),))
        for note in sweep["notes"]:
            rows += [((f" {line}", "dim"),) for line in wrap(clean(note), cells - 2, _NOTE_ROWS)]
    return rows


def table(seen: Seen, sweep: Json, cells: int) -> list[Row]:
    """A line a cell; the columns that fit."""
    wanted = sweep["cells"]
    scaled = any(cell["base"] for cell in wanted)
    columns = [("samples/s", 10), ("±", 6), ("step ms", 9), ("p95", 8)]
    columns += [("speed-up", 9), ("of ideal", 9)] if scaled else [("of first", 9)]
    columns += [("J/1000", 8), ("memory", 7), ("first s", 8)]
    columns = [c for c in columns if any(_texts(cell)[c[0]] != NA for cell in wanted)]
    longest = max((cells_of(clean(cell["label"])) for cell in wanted), default=0)
    name_cells = min(longest + 3, max(16, cells // 3))
    room = cells - name_cells - 16
    shown: list[tuple[str, int]] = []
    for column in columns:
        if sum(size for _, size in shown) + column[1] <= room:
            shown.append(column)
    head: list[Span] = [(" " * name_cells, "")]
    head += [(pad(name, size, ">"), "dim") for name, size in shown]
    rows: list[Row] = [tuple(head)]
    for cell in wanted:
        texts = _texts(cell)
        mark = "▸ " if cell["status"] == "running" else "* " if cell["role"] != "asked" else "  "
        spans: list[Span] = [
            (" " + mark, "accent"),
            (pad(clean(cell["label"]), name_cells - 3), "value"),
        ]
        spans += [(pad(texts[name], size, ">"), "") for name, size in shown]
        rows.append((*spans, ("  ", ""), *_last(seen, cell)))
    return rows


def _texts(cell: Json) -> dict[str, str]:
    """A cell's numbers as text, by column."""
    speed, step = cell["samples_per_s"] or {}, cell["step_ms"] or {}
    spread = known(speed.get("spread"))
    return {
        "samples/s": rate(speed.get("median")),
        "±": NA if spread is None else f"{spread / 2:.1%}",
        "step ms": _ms(step.get("median")),
        "p95": _ms(cell["p95_ms"]),
        "speed-up": _times(cell["speedup"]),
        "of ideal": NA if known(cell["efficiency"]) is None else f"{cell['efficiency']:.0%}",
        "of first": _times(cell["relative"]),
        "J/1000": rate(cell["energy_j_per_1000_samples"]),
        "memory": short_size(cell["memory_peak_bytes"]),
        "first s": NA if known(cell["first_steps_s"]) is None else f"{cell['first_steps_s']:.1f}",
    }


def _last(seen: Seen, cell: Json) -> list[Span]:
    """What a cell is at, or what it came to."""
    status = str(cell["status"])
    if status == "running":
        return [(_progress(seen), "accent")]
    if status != "measured":
        reason = f" {clean(cell['reason'])}" if cell.get("reason") else ""
        return [(status + reason, _STATUS.get(status, ""))]
    verdict = cell["verdict"] or {}
    share = known(verdict.get("share"))
    told = clean(verdict.get("kind") or "") + ("" if share is None else f" {share:.0%}")
    return [(told, _SEVERITY.get(str(verdict.get("severity")), "unknown"))]


def _progress(seen: Seen) -> str:
    analysis = seen.analysis or {}
    steps = analysis.get("steps")
    if not steps:
        return f"starting {_duration(seen.elapsed_s)}".rstrip()
    total = (analysis.get("progress") or {}).get("total_steps")
    return f"step {steps}" + (f" of {total}" if total else "")


def waterfall(cell: Json, cells: int, glyphs: Glyphs = UNICODE) -> list[Row]:
    """From the ideal to the measured throughput of a cell, a line a part."""
    loss = cell.get("loss")
    if not loss:
        return []
    lost = loss["lost_points"]
    word = "lost" if lost >= 0 else "gained"
    rows: list[Row] = [
        ((" ", ""),),
        (
            (f" {clean(cell['label'])}", "title"),
            (f"  {rate(loss['measured_samples_per_s'])} of ", ""),
            (f"{rate(loss['ideal_samples_per_s'])} samples/s ideal: ", ""),
            (f"{abs(lost):.1f} % {word}", "value"),
        ),
    ]
    parts: Sequence[Json] = loss["parts"]
    most = max((abs(part["points"]) for part in parts), default=0.0) or 1.0
    name_cells = max(cells_of(clean(part["label"])) for part in parts) + 2
    for part in sorted(parts, key=lambda part: part["key"] == "other"):
        filled = round(_BAR * max(0.0, part["points"]) / most)
        why = clean(part["why"] or "") if abs(part["points"]) >= 0.05 else ""
        rows.append(
            (
                (pad("  " + clean(part["label"]), name_cells + 1), ""),
                (pad(f"{part['points']:.1f} %", 8, ">"), "value"),
                (" ", ""),
                (pad(glyphs.full * filled, _BAR), "bar"),
                (" " + cut(why, max(0, cells - name_cells - _BAR - 11)), "dim"),
            )
        )
    return rows


def _ms(value: Any) -> str:
    number = known(value)
    return NA if number is None else f"{number:.1f}" if number < 1000 else f"{number:.0f}"


def _times(value: Any) -> str:
    number = known(value)
    return NA if number is None else f"{number:.2f}x"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
