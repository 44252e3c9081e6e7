"""From the columns of ``steps`` records to rows. Tolerant: what is missing becomes None."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .frontier import FRONTIER_PHASES, LOCAL_PHASES, Row

_PHASE_COLUMNS = tuple(phase + "_us" for phase in FRONTIER_PHASES)
_HOST_COLUMNS = tuple(phase + "_host_us" for phase in LOCAL_PHASES)
_LAG_COLUMNS = tuple(f"lag_{phase}_us" for phase in LOCAL_PHASES)
_PLAIN_COLUMNS = (
    "data_host_us",
    "lag_forward_us",
    "lag_backward_us",
    "lag_width_us",
    "samples",
    "tokens",
)


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
    size = len(steps)
    stamp = integer(record.get("mono_ns")) or 0
    ends = _column(record, "end_ns", size)
    hosts = _column(record, "host_us", size)
    phases = zip(*(_column(record, name, size) for name in _PHASE_COLUMNS), strict=True)
    plain = zip(*(_column(record, name, size) for name in _PLAIN_COLUMNS), strict=True)
    host_phases = _by_phase(record, size, _HOST_COLUMNS, "backward_host_us", _duration)
    lag_phases = _by_phase(record, size, _LAG_COLUMNS, "lag_other_us", integer)
    rows: list[Row] = []
    for index, (values, others) in enumerate(zip(phases, plain, strict=True)):
        step = integer(steps[index])
        if step is None or step < 0:
            continue
        end = integer(ends[index])
        row = _row(step, stamp if end is None else end, values, others)
        rows.append(
            row._replace(
                host_us=_duration(hosts[index]),
                local_host_us=host_phases[index],
                local_lag_us=lag_phases[index],
            )
        )
    return rows


def _row(step: int, end_ns: int, values: Sequence[Any], others: Sequence[Any]) -> Row:
    phases = [integer(value) for value in values]
    known = [max(0, value or 0) for value in phases]
    unknown = [n for n, value in zip(FRONTIER_PHASES, phases, strict=True) if value is None]
    data_host, lag_forward, lag_backward, lag_width, samples, tokens = map(integer, others)
    data_host, lag_width = _duration(data_host), _duration(lag_width)
    return Row(
        step=step,
        end_ns=end_ns,
        host_us=None,
        local_us=tuple(known[:-1]),
        exposed_us=known[-1],
        unknown=tuple(unknown),
        data_host_us=data_host,
        lag_forward_us=lag_forward,
        lag_backward_us=lag_backward,
        lag_width_us=lag_width,
        samples=samples,
        tokens=tokens,
    )


def _column(record: dict[str, Any], name: str, size: int) -> list[Any]:
    values = record.get(name)
    if isinstance(values, list) and len(values) == size:
        return values
    return [None] * size


def _duration(value: Any) -> int | None:
    """An integer that is not negative; None for anything else."""
    known = integer(value)
    return known if known is not None and known >= 0 else None


def _by_phase(
    record: dict[str, Any],
    size: int,
    names: Sequence[str],
    telling: str,
    known: Callable[[Any], int | None],
) -> list[tuple[int | None, ...] | None]:
    """Columns of each phase as a tuple a row.

    None without the column `telling`: earlier probes wrote some of the others alone.
    """
    if telling not in record:
        return [None] * size
    columns = [_column(record, name, size) for name in names]
    return [tuple(known(value) for value in values) for values in zip(*columns, strict=True)]
