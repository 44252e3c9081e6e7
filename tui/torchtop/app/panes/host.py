"""The host: processor, memory, disk and network of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchtop.app.charts.glyphs import Glyphs
from torchtop.app.charts.spark import spark
from torchtop.app.format import NA, gib, known, percent_of, short_size
from torchtop.app.panes.parts import items, level_meter
from torchtop.app.text import Row, Span, clean, cut, fit, pad
from torchtop.app.view import STALE_AFTER_S, View
from torchtop.session.state import Host

_LABEL = 7


def aside(view: View, width: int) -> list[Span]:
    """The host's name and its cores."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.hosts:
        return []
    if len(snapshot.hosts) > 1:
        return [(f"{len(snapshot.hosts)} nodes", "")]
    host = snapshot.hosts[0]
    cores = known(host.facts.get("cpu_count"))
    name = cut(clean(host.name, 60), max(8, width // 2))
    return [(name, ""), (f" · {cores:.0f} cores" if cores else "", "dim")]


def body(view: View, width: int, height: int) -> list[Row]:
    """The node's figures; with several nodes a line each."""
    snapshot = view.snapshot
    if snapshot is None or not snapshot.hosts or height <= 0:
        return []
    fresh = snapshot.live or view.idle
    if len(snapshot.hosts) > 1:
        return [_line(view, host, width) for host in snapshot.hosts][:height]
    return _one(view, snapshot.hosts[0], width, height, fresh)


def _one(view: View, host: Host, width: int, height: int, fresh: bool) -> list[Row]:
    now, glyphs = host.now, view.glyphs
    bar = max(6, min(24, width // 4))
    load = known(now.get("load_1m"))
    cpu: list[Span] = [
        (pad("CPU", _LABEL), "dim"),
        *level_meter(now.get("cpu_percent"), 100, bar, glyphs),
        (f" {percent_of(now.get('cpu_percent')):>5}", "value"),
        ("  load ", "dim"),
        (NA if load is None else f"{load:.1f}", ""),
    ]
    if fresh and host.age_s > STALE_AFTER_S:
        cpu.append((f"  {host.age_s:.0f} s old" if host.age_s < 1e6 else "  no data", "warn"))
    used, total = now.get("memory_used_bytes"), host.facts.get("memory_total_bytes")
    memory: list[Span] = [
        (pad("memory", _LABEL), "dim"),
        *level_meter(used, total, bar, glyphs),
        (f" {gib(used)}", "value"),
        (f"/{gib(total)} GiB", "dim"),
    ]
    rows = [fit(cpu, width)]
    cores = core_rows(items(now, "cpu_percent_per_core"), width - _LABEL, glyphs)
    spare = height - 4
    if cores and spare > 0:
        shown = cores[: min(len(cores), spare)]
        rows += [
            fit([(pad("cores" if i == 0 else "", _LABEL), "dim"), (row, "spark")], width)
            for i, row in enumerate(shown)
        ]
    rows += [fit(memory, width), *_io(host, width)]
    if height > len(rows) and any(v is not None for v in host.cpu_series):
        line = spark(host.cpu_series, width - _LABEL, glyphs, high=100.0)
        rows.insert(1, fit([(pad("", _LABEL), ""), (line, "spark")], width))
    return rows[:height]


def core_rows(percents: Sequence[Any], cells: int, glyphs: Glyphs) -> list[str]:
    """A column a core, in as many rows as it takes; groups of four are set apart if they fit."""
    values = [known(value) for value in percents]
    if not values or cells < 8:
        return []
    grouped = len(values) + len(values) // 4 <= cells
    per_row = len(values) if grouped else cells // 8 * 8
    rows = []
    for start in range(0, len(values), per_row):
        part = values[start : start + per_row]
        drawn = spark(part, len(part), glyphs, high=100.0)
        if grouped:
            drawn = " ".join(drawn[i : i + 4] for i in range(0, len(drawn), 4))
        rows.append(drawn)
    return rows


def _io(host: Host, width: int) -> list[Row]:
    now = host.now
    rows = []
    for name, first, second, ways in (
        ("disk", "disk_read", "disk_write", ("read", "write")),
        ("network", "net_rx", "net_tx", ("in", "out")),
    ):
        spans: list[Span] = [(pad(name, _LABEL), "dim")]
        for key, way in ((first, ways[0]), (second, ways[1])):
            value = short_size(now.get(key + "_bytes_per_s"))
            spans += [(f" {value:>5}", ""), (f"/s {way} ", "dim")]
        rows.append(fit(spans, width))
    return rows


def _line(view: View, host: Host, width: int) -> Row:
    now = host.now
    used, total = now.get("memory_used_bytes"), host.facts.get("memory_total_bytes")
    old = f"  {host.age_s:.0f} s old" if STALE_AFTER_S < host.age_s < 1e6 else ""
    return fit(
        [
            (pad(clean(host.name, 60), 16) + " ", ""),
            ("CPU ", "dim"),
            *level_meter(now.get("cpu_percent"), 100, 8, view.glyphs),
            (f" {percent_of(now.get('cpu_percent')):>5}", "value"),
            ("  memory ", "dim"),
            (f"{gib(used)}/{gib(total)} GiB", ""),
            (old, "warn"),
        ],
        width,
    )
