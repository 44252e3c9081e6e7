"""Recorded steps laid out on a time line: when each phase of each began, on both clocks.

A ``steps`` record says when the marker that ended a step was enqueued, how far the device ran
behind then, and how long each phase took. From these the phases are laid out back to back. Where a
step has a phase in several pieces (micro-batches of an accumulation) they are drawn as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchtop.session.records import PHASES, Record
from torchtop.session.values import items

_AFTER_SYNC = (
    "pre_optimizer", "optimizer", "other", "data", "forward", "backward", "exposed_comm",
)  # fmt: skip
"""The phases in the order of time, of a step that ends where gradients are synchronised."""

_AFTER_OPTIMIZER = (
    "other", "data", "forward", "backward", "exposed_comm", "pre_optimizer", "optimizer",
)  # fmt: skip
"""The same of a step that ends with the optimizer."""

_SAME_US = 50
"""Misfits that differ by less say nothing: host times jitter so much."""

_DRIFT_NS = 1_000_000
"""A row of steps is laid end to end until it is off by so much from what the markers say."""


@dataclass(frozen=True)
class Piece:
    """A phase of a step: nanoseconds of the host's monotonic clock."""

    phase: str
    start_ns: int
    length_ns: int


@dataclass(frozen=True)
class Step:
    """One step on one clock, and its pieces back to back."""

    number: int
    start_ns: int
    length_ns: int
    pieces: tuple[Piece, ...]
    samples: int | None


class Timeline:
    """Lays out one rank's steps, in their order.

    Args:
        suffix: the columns to draw: ``_us`` for the device's clock, ``_host_us`` for the host's.
        many: there are several ranks.
    """

    def __init__(self, suffix: str, many: bool = True) -> None:
        self._suffix, self._many = suffix, many
        self._order: tuple[str, ...] | None = None
        self._last: Step | None = None

    def add(self, record: Record) -> Iterator[Step]:
        """The steps of one ``steps`` record; those without times of every phase are left out."""
        columns = {phase: items(record, phase + self._suffix) for phase in PHASES}
        ends = items(record, "end_ns")
        if self._order is None:
            self._order = _order(record, self._many)
        lags = self._lags(record)
        samples = items(record, "samples")
        # The host's phases are rounded down one by one; its whole step is told beside them.
        wholes = [] if self._suffix == "_us" else items(record, "host_us")
        for place, number in enumerate(items(record, "step")):
            parts = {phase: _whole(column, place) for phase, column in columns.items()}
            end = _whole(ends, place)
            known = {phase: part for phase, part in parts.items() if part is not None}
            if len(known) < len(PHASES) or end is None or not isinstance(number, int):
                continue
            anchor = end + 1000 * (_whole(lags, place) or 0)
            length_us = max(sum(known.values()), _whole(wholes, place) or 0)
            yield self._lay(number, anchor, length_us, known, _whole(samples, place))

    def _lags(self, record: Record) -> Sequence[Any]:
        """How far the device was behind when the step ended; the host is not behind itself."""
        if self._suffix != "_us" or self._order is None:
            return []
        return items(record, f"lag_{self._order[-1]}_us")

    def _lay(
        self, number: int, end_ns: int, length_us: int, parts: dict[str, int], samples: int | None
    ) -> Step:
        assert self._order is not None
        length = length_us * 1000
        start, last = end_ns - length, self._last
        if last is not None:
            free = last.start_ns + last.length_ns
            follows = number == last.number + 1 and abs(start - free) < _DRIFT_NS
            start = free if follows else max(start, free)
        pieces, at = [], start
        for phase in self._order:
            pieces.append(Piece(phase, at, parts[phase] * 1000))
            at += parts[phase] * 1000
        self._last = Step(number, start, length, tuple(pieces), samples)
        return self._last


def _order(record: Record, many: bool) -> tuple[str, ...]:
    """The order of phases, by where steps end: there the lag fits from one step to the next.

    Where it fits elsewhere as well, because the device's lag hardly changes within a step, several
    ranks are taken to synchronise and one not to.
    """
    likely, other = (_AFTER_SYNC, _AFTER_OPTIMIZER)[:: 1 if many else -1]
    better = _misfit(record, other[-1]) < _misfit(record, likely[-1]) / 2 - _SAME_US
    return other if better else likely


def _misfit(record: Record, phase: str) -> float:
    """How badly the device's times of consecutive steps agree, were `phase` the last of each."""
    numbers, ends = items(record, "step"), items(record, "end_ns")
    lags = items(record, f"lag_{phase}_us")
    columns = [items(record, name + "_us") for name in PHASES]
    off, pairs = 0, 0
    for place in range(1, len(numbers)):
        before, after = (_whole(ends, p) for p in (place - 1, place))
        behind, now = (_whole(lags, p) for p in (place - 1, place))
        parts = [_whole(column, place) for column in columns]
        known = [part for part in parts if part is not None]
        if before is None or after is None or behind is None or now is None:
            continue
        if len(known) == len(PHASES) and numbers[place] == numbers[place - 1] + 1:
            off += abs((after - before) // 1000 + now - behind - sum(known))
            pairs += 1
    return off / pairs if pairs else float("inf")


def _whole(values: Sequence[Any], place: int) -> int | None:
    value = values[place] if place < len(values) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
