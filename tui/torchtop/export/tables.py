"""A session as CSV tables, one file each: what a spreadsheet or pandas reads.

Columns carry their unit in the name, as in the records. A value that is not known is an empty cell.
``time_s`` is Unix time, ``at_s`` the time since the session began.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torchtop.export.source import Source
from torchtop.session.records import HOST_COLUMNS, LAG_COLUMNS, PHASE_COLUMNS, PHASES
from torchtop.session.values import child, children, items

Cells = Sequence[Any]

_STEP_COLUMNS = (
    "host_us", *PHASE_COLUMNS, *HOST_COLUMNS, *LAG_COLUMNS, "lag_width_us", "samples", "tokens",
)  # fmt: skip
_GPU_METRICS = (
    "util_percent", "sm_active", "sm_occupancy", "tensor_active", "dram_active",
    "memory_used_bytes", "power_w", "temperature_c", "sm_clock_mhz", "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "energy_j", "throttle",
)  # fmt: skip
_HOST_METRICS = (
    "cpu_percent", "load_1m", "memory_used_bytes", "disk_read_bytes_per_s",
    "disk_write_bytes_per_s", "net_rx_bytes_per_s", "net_tx_bytes_per_s",
)  # fmt: skip
_STEP_MS = ("mean", "p50", "p95", "p99", "max")
_RATES = ("samples_per_s", "tokens_per_s", "steps_per_s")
_VERDICT = ("kind", "severity", "share", "rank", "phase", "gain_bound")
_TIMES = ("time_s", "at_s")


def write_tables(source: Source, directory: Path) -> list[Path]:
    """Write a table a file.

    Args:
        source: the session.
        directory: an empty one.

    Returns:
        The files.

    Raises:
        OSError: they cannot be written.
    """
    tables: dict[str, Callable[[Source], Iterator[Cells]]] = {
        "steps": _steps,
        "seconds": _seconds,
        "ranks": _ranks,
        "scalars": _scalars,
        "pauses": _pauses,
        "gpus": _gpus,
        "hosts": _hosts,
        "verdicts": _verdicts,
    }
    files = []
    for name, rows in tables.items():
        files.append(directory / f"{name}.csv")
        with files[-1].open("w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file).writerows([_cell(value) for value in row] for row in rows(source))
    return files


def _cell(value: Any) -> Any:
    """A value fit for a spreadsheet: text of a session that looks like a formula is none there.

    As OWASP advises against "CSV injection": what begins like one gets an apostrophe before it.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        value = "; ".join(map(str, value))
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _moment(source: Source, mono_ns: Any, host: str | None = None) -> list[float]:
    stamp = source.unix_ns(mono_ns, host)
    return [stamp / 1e9, round((stamp - source.start_ns) / 1e9, 6)]


def _steps(source: Source) -> Iterator[Cells]:
    """Every recorded step of every rank; the phases are on the device's clock."""
    yield ["rank", "step", *_TIMES, "duration_us", *_STEP_COLUMNS]
    for rank in source.ranks():
        for record in source.records(rank.path, rank.host, "steps"):
            ends = items(record, "end_ns")
            columns = [items(record, name) for name in _STEP_COLUMNS]
            phases = [items(record, name) for name in PHASE_COLUMNS]
            for place, step in enumerate(items(record, "step")):
                moment = _moment(source, _at(ends, place), rank.host)
                parts = [_at(phase, place) for phase in phases]
                whole = sum(parts) if all(isinstance(part, int) for part in parts) else None
                values = (_at(column, place) for column in columns)
                yield [rank.rank, step, *moment, whole, *values]


def _seconds(source: Source) -> Iterator[Cells]:
    """What the analysis told each second: of the window it looked at then."""
    phases = [f"{phase}_{what}" for phase in PHASES for what in ("ms", "share")]
    verdict = [f"verdict_{name}" for name in (*_VERDICT, "headline")]
    head = ["step", "warming_up", *(f"step_{q}_ms" for q in _STEP_MS), *_RATES, *phases, *verdict]
    yield [*_TIMES, *head]
    for record in source.analyses():
        told, speed = child(record, "step_ms"), child(record, "throughput")
        shares = (child(child(record, "phases"), phase) for phase in PHASES)
        judged = child(record, "verdict")
        yield [
            *_moment(source, record.get("mono_ns")),
            *(record.get(name) for name in ("step", "warming_up")),
            *(told.get(name) for name in _STEP_MS),
            *(speed.get(name) for name in _RATES),
            *(share.get(what) for share in shares for what in ("ms", "share")),
            *(judged.get(name) for name in (*_VERDICT, "headline")),
        ]


def _ranks(source: Source) -> Iterator[Cells]:
    """The ranks each second."""
    names = ("rank", "step", "step_ms", "host_step_ms", "wait_ms", "lag_ms", "data_host_ms")
    last = ("ready", "marker", "marker_age_s")
    yield [*_TIMES, *names, *(f"{phase}_ms" for phase in PHASES), *last]
    for record in source.analyses():
        for rank in children(record, "ranks"):
            yield [
                *_moment(source, record.get("mono_ns")),
                *(rank.get(name) for name in names),
                *(child(rank, "phases").get(phase) for phase in PHASES),
                *(rank.get(name) for name in last),
            ]


def _scalars(source: Source) -> Iterator[Cells]:
    """What the script logged."""
    yield ["rank", "step", *_TIMES, "name", "value"]
    for rank in source.ranks():
        for record in source.records(rank.path, rank.host, "scalars"):
            moment = _moment(source, record.get("mono_ns"), rank.host)
            for name, value in child(record, "values").items():
                yield [rank.rank, record.get("step"), *moment, name, value]


def _pauses(source: Source) -> Iterator[Cells]:
    """What held the training thread up: garbage collection, saving, evaluation."""
    yield ["rank", "step", *_TIMES, "what", "duration_us"]
    for rank in source.ranks():
        for record in source.records(rank.path, rank.host, "pause"):
            moment = _moment(source, record.get("start_ns"), rank.host)
            names = ("what", "duration_us")
            yield [rank.rank, record.get("step"), *moment, *(record.get(n) for n in names)]


def _gpus(source: Source) -> Iterator[Cells]:
    """Every GPU of every node each second."""
    yield ["host", "gpu", "uuid", "name", *_TIMES, *_GPU_METRICS]
    for host, facts, record in _ticks(source):
        told = child(record, "gpus")
        for place, fact in enumerate(facts):
            values = (_at(items(told, name), place) for name in _GPU_METRICS)
            named = (fact.get("index", place), fact.get("uuid"), fact.get("name"))
            yield [host, *named, *_moment(source, record.get("mono_ns"), host), *values]


def _hosts(source: Source) -> Iterator[Cells]:
    """Every node each second."""
    yield ["host", *_TIMES, *_HOST_METRICS]
    for host, _, record in _ticks(source):
        told = child(record, "host")
        moment = _moment(source, record.get("mono_ns"), host)
        yield [host, *moment, *(told.get(name) for name in _HOST_METRICS)]


def _ticks(source: Source) -> Iterator[tuple[str, list[Any], Any]]:
    for host, path, facts in source.samplers():
        for record in source.records(path, host, "tick"):
            yield host, facts, record


def _verdicts(source: Source) -> Iterator[Cells]:
    """The verdicts of the whole run and what stood beside them, the longest first."""
    names = (
        *_VERDICT,
        "cause",
        "seconds",
        "from_step",
        "to_step",
        "headline",
        "evidence",
        "advice",
    )
    yield ["what", *names]
    for what in ("verdicts", "findings"):
        for verdict in children(source.loaded.summary, what):
            yield [what.removesuffix("s"), *(verdict.get(name) for name in names)]


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None
