"""The browser's rows: pure functions from what is known to styled text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchtop.app.charts.table import Column, header, layout, record
from torchtop.app.format import NA, count, duration, rate
from torchtop.app.text import Row, Span, clean, cut, fit, spread
from torchtop.session.baselines import Baseline
from torchtop.session.overview import LIVE, UNITS, Entry

STATES: dict[str, tuple[str, ...]] = {
    "all": (),
    "live": LIVE,
    "ended": ("done", "stopped", "ended"),
    "failed": ("failed",),
    "lost": ("lost",),
}
"""The filters by state, in the order in which a key goes through them."""

_STYLES = {
    "starting": "note",
    "running": "ok",
    "detached": "ok",
    "failed": "critical",
    "lost": "warn",
}
_SEVERITIES = {"ok": "ok", "note": "note", "warn": "warn", "critical": "critical"}

_COLUMNS = (
    Column("mark", "", 3),
    Column("name", "session", 14, stretch=3, most=60),
    Column("state", "state", 8),
    Column("started", "started", 11, rank=1),
    Column("ran", "ran", 7, align=">", rank=3),
    Column("steps", "steps", 7, align=">", rank=5),
    Column("rate", "samples/s", 13, align=">"),
    Column("against", "against", 7, align=">", rank=4),
    Column("verdict", "verdict", 13, rank=2),
    Column("workload", "workload", 16, rank=6, stretch=1, most=30),
)

_UNITS = {"tokens/s": " tok/s", "steps/s": " steps/s"}
"""What stands behind a rate that does not count in the column's own unit."""


@dataclass(frozen=True)
class Shown:
    """What the list shows.

    Attributes:
        entries: the sessions that pass the filters.
        total: how many there are.
        at: the place of the cursor.
        state: the state filter's name.
        text: the text filter.
        typing: whether keys go into the text filter.
        marked: the session that is marked for a comparison.
        baselines: by workload.
    """

    entries: Sequence[Entry]
    total: int
    at: int
    state: str
    text: str
    typing: bool
    marked: str | None
    baselines: Mapping[str, Baseline]


def passes(entry: Entry, state: str, text: str) -> bool:
    """Whether a session passes the filters: every word of the text is somewhere in its line."""
    wanted = STATES[state]
    if wanted and entry.state not in wanted:
        return False
    line = f"{entry.paths.id} {entry.name} {entry.workload} {entry.state} {entry.verdict} "
    line = f"{line}{entry.stage} {entry.options} {entry.headline}".lower()
    return all(word in line for word in text.lower().split())


def table(shown: Shown, width: int, height: int) -> list[Row]:
    """The filters, the titles, and the sessions around the cursor."""
    placed = layout(_COLUMNS, width)
    rows = [_filters(shown, width), header(placed, width)]
    space = max(1, height - 2)
    first = max(0, min(shown.at - space // 2, len(shown.entries) - space))
    for place, entry in enumerate(shown.entries[first : first + space], first):
        rows.append(record(placed, _cells(entry, shown, place == shown.at), width))
    if not shown.entries:
        told = "no session passes the filter" if shown.total else "no sessions yet"
        rows.append(fit([(f"   {told}", "dim")], width))
    rows += [fit([], width)] * (height - len(rows))
    return rows[:height]


def _filters(shown: Shown, width: int) -> Row:
    left: list[Span] = []
    for name in STATES:
        chosen = name == shown.state
        left += [(name, "value" if chosen else "dim"), ("  ", "")]
    if shown.text or shown.typing:
        left += [("/", "key"), (clean(shown.text, 100), "value")]
        left += [("▏", "accent")] if shown.typing else []
    many = f"{len(shown.entries)} of {shown.total}"
    return spread(left, [(many, "dim")], width)


def _cells(entry: Entry, shown: Shown, chosen: bool) -> dict[str, list[Span]]:
    base = shown.baselines.get(entry.workload)
    is_base = base is not None and base.directory == str(entry.paths.root)
    is_marked = shown.marked == str(entry.paths.root)
    mark: list[Span] = [
        ("▸" if chosen else " ", "accent"),
        ("■" if is_marked else " ", "note"),
        ("●" if is_base else " ", "ok"),
    ]
    text = "value" if chosen else ""
    told = entry.stage or clean(entry.verdict, 40)
    return {
        "mark": mark,
        "name": [(cut(clean(entry.name, 200), 60), text)],
        "state": [(entry.state, _STYLES.get(entry.state, text))],
        "started": [(started(entry.started_s), "dim")],
        "ran": [(duration(entry.wall_s), "dim")],
        "steps": [(count(entry.steps), "dim")],
        "rate": [(rate(entry.rate) + _UNITS.get(entry.unit, ""), text)],
        "against": [_against(entry, base)],
        "verdict": [(told or NA, _SEVERITIES.get(entry.severity, "dim"))],
        "workload": [(clean(entry.workload, 60) or NA, "dim")],
    }


def _against(entry: Entry, base: Baseline | None) -> Span:
    """How many times as fast as the baseline, where there is one of the same unit."""
    name = entry.unit.replace("/s", "_per_s")
    found = base.speed_up({name: entry.rate}) if base else None
    return (f"{found[0]:.2f}x", "dim") if found else (NA, "faint")


def started(seconds: float | None) -> str:
    """When a session began: the time of today, else the date."""
    if seconds is None:
        return NA
    try:
        then, now = time.localtime(seconds), time.localtime()
    except (OverflowError, ValueError, OSError):
        return NA
    if (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("today %H:%M", then)
    if then.tm_year == now.tm_year:
        return time.strftime("%m-%d %H:%M", then)
    return time.strftime("%Y-%m-%d", then)


def detail(entry: Entry | None, baselines: Mapping[str, Baseline], width: int) -> list[Row]:
    """Three lines about the session under the cursor."""
    if entry is None:
        return [fit([], width)] * 3
    device = "GPU" if entry.device == "cuda" else "CPU"
    where = f"{entry.ranks or NA} {device} rank{'' if entry.ranks == 1 else 's'}"
    first: list[Span] = [(clean(entry.paths.id, 200), "value"), (f"  {where}", "dim")]
    options = clean(entry.options, 300)
    second: list[Span] = [("options  ", "dim"), (options or "the defaults", "")]
    base = baselines.get(entry.workload)
    if base is not None:
        name, value = next(iter(base.rates.items()), ("", None))
        told = f"{clean(base.name, 60)} {rate(value)} {UNITS.get(name, '')}".rstrip()
        second = [*second, ("  ● ", "ok"), (told, "dim")]
    told = clean(entry.problem or entry.headline, 400)
    return [fit(first, width), fit(second, width), fit([(told or "no verdict", "dim")], width)]
