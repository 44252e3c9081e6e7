"""From the columns of ``steps`` records to rows. Tolerant: what is missing becomes None."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .frontier import FORWARD, FRONTIER_PHASES, LOCAL_PHASES, Row

_PHASE_COLUMNS = tuple(phase + "_us" for phase in FRONTIER_PHASES)
_HOST_COLUMNS = tuple(phase + "_host_us" for phase in LOCAL_PHASES)
_LAG_COLUMNS = tuple(f"lag_{phase}_us" for phase in LOCAL_PHASES)

_LARGEST = 2**63
_MOST_RANKS = 65_536
"""More than any run has: what is kept of each rank takes memory."""


def integer(value: Any) -> int | None:
    """A number as an integer; None for anything else, or what no 64 bits can hold."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return value if type(value) is int and abs(value) <= _LARGEST else None


def world_size(value: Any) -> int | None:
    """A number of ranks; None for anything that cannot be one."""
    size = integer(value)
    return size if size is not None and 0 < size <= _MOST_RANKS else None


def number(value: Any) -> float | None:
    """A finite number as a float; None for anything else, or what no 64 bits can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= _LARGEST else None  # not a number is no less either


def plain(value: Any) -> Any:
    """The same value, in which each number that cannot be one is None."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    odd = isinstance(value, (int, float)) and not isinstance(value, bool) and number(value) is None
    return None if odd else value


def parse_steps(record: dict[str, Any]) -> list[Row]:
    """The rows of one ``steps`` record.

    Columns that are absent or null are None in every row; a column of another length than
    ``step`` is treated as absent.

    Raises:
        ValueError: there is no usable ``step`` column.
    """
    steps = record.get("step")
    if not isinstance(steps, list):
        raise ValueError("a steps record without a step column")
    size, nothing = len(steps), [None] * len(steps)

    def column(name: str) -> list[Any]:
        values = record.get(name)
        return values if isinstance(values, list) and len(values) == size else nothing

    stamp = integer(record.get("mono_ns")) or 0
    phases = [_integers(column(name)) for name in _PHASE_COLUMNS]
    untold = _untold(column("unknown_us"))  # a wait or forward: both come before backward
    phases[FORWARD] = _added(phases[FORWARD], untold)
    hosts: Iterable[tuple[int | None, ...] | None] = nothing
    lags: Iterable[tuple[int | None, ...] | None] = nothing
    if "backward_host_us" in record:  # earlier probes wrote some of these columns alone
        parts = [_durations(column(name)) for name in _HOST_COLUMNS]
        parts[FORWARD] = _added(parts[FORWARD], _untold(column("unknown_host_us")))
        hosts = zip(*parts, strict=True)
    if "lag_other_us" in record:
        lags = zip(*(_integers(column(name)) for name in _LAG_COLUMNS), strict=True)
    rows = map(
        Row,
        _integers(steps),
        (stamp if end is None else end for end in _integers(column("end_ns"))),
        _durations(column("host_us")),
        zip(*(_at_least_0(values) for values in phases[:-1]), strict=True),
        _at_least_0(phases[-1]),
        _unknown(phases, size),
        _durations(column("data_host_us")),
        _integers(column("lag_forward_us")),
        _integers(column("lag_backward_us")),
        _durations(column("lag_width_us")),
        _integers(column("samples")),
        _integers(column("tokens")),
        hosts,
        lags,
        untold,
    )
    return [row for row in rows if row.step is not None and row.step >= 0]


# Columns are long and nearly always in order, which is quickly seen of a whole column.


def _integers(values: list[Any]) -> list[int | None]:
    """A column as integers, and None where it has something else."""
    if set(map(type, values)) == {int} and -_LARGEST <= min(values) <= max(values) <= _LARGEST:
        return values
    return [integer(value) for value in values]


def _durations(values: list[Any]) -> list[int | None]:
    """The same, without what is negative."""
    known = _integers(values)
    if None not in known and (not values or min(known) >= 0):  # type: ignore[type-var, operator]
        return known
    return [None if value is None or value < 0 else value for value in known]


def _at_least_0(values: list[int | None]) -> list[int]:
    """The same, with 0 for what is not known or negative."""
    return [value if value is not None and value > 0 else 0 for value in values]


def _untold(values: list[Any]) -> list[int]:
    """A column of unknown time, which most records have not."""
    return _at_least_0(_integers(values)) if any(values) else [0] * len(values)


def _added(values: list[int | None], more: list[int]) -> list[int | None]:
    if not any(more):
        return values
    return [None if a is None else a + b for a, b in zip(values, more, strict=True)]


def _unknown(phases: list[list[int | None]], size: int) -> Iterable[tuple[str, ...]]:
    """By row, the phases that are not known."""
    if not any(None in values for values in phases):
        return [()] * size
    named = zip(FRONTIER_PHASES, phases, strict=True)
    told = [[name if value is None else "" for value in values] for name, values in named]
    return (tuple(filter(None, names)) for names in zip(*told, strict=True))
