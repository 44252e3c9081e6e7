"""The one thread of the probe: it writes what the training thread has queued, twice a second.

It touches no CUDA work queue and never holds the training thread up; after a fork it does not
exist in the child.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, List, Optional, Protocol, Sequence, Set, Tuple, Union

from ..session.records import (
    HOST_COLUMNS,
    LAG_COLUMNS,
    PHASE_COLUMNS,
    Appender,
    columns,
    is_recorded,
)
from ..session.room import RESERVE_BYTES
from .allowance import Allowance
from .assemble import Row, row_of
from .clock import Mark
from .inspection import fields
from .own import OwnPhases

_INTERVAL_S = 0.5
_SLOW_EVERY = 10
"""Memory and cost are written once in so many turns: reading memory statistics takes 80 us."""

_SPARING_INTERVAL_S = 2.0
"""Half of the bytes are the names of columns, once a turn. A hung run is told by the time of the
last marker, so it is told no later."""

_MOST_ROWS_PER_S = 20.0
_LEAST_ROWS_PER_S = 4.0
"""A verdict needs 20 steps, and a change should show within some seconds."""

_LEAST_OF_ALL_PER_S = 2.0
"""The same of a job whose steps would cost more than they may: as many as a verdict needs of the 10
seconds that it looks at."""

_BUDGET = 0.003
"""The share of time that the probe may take from the training thread: one a user cannot measure."""

_STEP_BUDGET_S = 120e-6
"""What a step may cost the training thread, on average: at most 150 microseconds were promised."""

_DOUBLING = 1.7
"""By how much a stride twice as long cuts the cost: what is done for every step remains."""

_RATE_OVER_S = 5.0
_ALL_OF_THE_FIRST = 64
"""So many steps are all recorded: warm-up and the window of a first verdict."""

_PATIENCE_S = 2.0
"""How long the end of the process waits for a disk that does not answer."""

_QUEUE = 16384
_COLUMNS = [
    "step",
    "end_ns",
    "host_us",
    *PHASE_COLUMNS,
    *HOST_COLUMNS,
    *LAG_COLUMNS,
    "lag_width_us",
    "samples",
    "tokens",
]
_UNKNOWN_COLUMNS = ("unknown_us", "unknown_host_us", "lag_unknown_us")
_SUMS = ("host_us", *PHASE_COLUMNS, "data_host_us", "samples", "tokens")


class Source(Protocol):
    """What a `Writer` asks for, twice a second: the probe."""

    disabled: Optional[str]

    def disable(self, why: Union[str, BaseException]) -> None:
        """Take the probe out."""

    def attend(self) -> None:
        """Do what viewers have asked for."""

    def beat(self) -> Dict[str, Any]:
        """The fields of a ``beat``: marker, marker_ns, step, ready."""

    def memory(self) -> Optional[Dict[str, Any]]:
        """The fields of a ``memory`` record, or None where there is no CUDA."""

    def cost(self) -> Dict[str, Any]:
        """cost_us, steps, cost_share, disabled and detail, since the last call."""

    def record_one_in(self, stride: int) -> None:
        """Measure one in so many steps from now on."""

    def spent_ns(self) -> int:
        """Host time spent so far on the training thread."""


class Writer:
    """Queues filled by the training thread, and the thread that empties them into a file.

    Once the probe is out, it says why and ends.

    Args:
        path: the rank's file; created now, with O_EXCL.
        header: further fields of the header.
        source: the probe.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path, header: Dict[str, Any], source: Source) -> None:
        self.steps: Deque[Tuple[int, Sequence[Mark]]] = deque(maxlen=_QUEUE)
        self.scalars: Deque[Tuple[int, str, float]] = deque(maxlen=_QUEUE)
        self.facts: Deque[Dict[str, Any]] = deque(maxlen=_QUEUE)
        self.pauses: Deque[Tuple[str, int, int, int]] = deque(maxlen=_QUEUE)
        """What, step, start_ns, duration_us."""
        self.inspections: Deque[Dict[str, Any]] = deque(maxlen=_QUEUE)
        """As an `Inspection` tells them."""
        self._inspected: List[Dict[str, Any]] = []
        self._told: Dict[Tuple[Any, Any], Dict[str, Any]] = {}
        self.notes: Deque[Tuple[str, Dict[str, Any]]] = deque(maxlen=_QUEUE)
        """Records of other kinds, with their fields."""
        self._own = OwnPhases()
        self._not_finite: Set[str] = set()
        self._overflowed = 0
        self._unwritten = 0
        self._file = Appender(path, "rank", reserve_bytes=RESERVE_BYTES, **header)
        self._source = source
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._said_why = False
        self._stride = 1
        self._turn = 0
        self._rate_from = (time.monotonic(), 0, 0)
        self._seen = 0
        self._allowance = Allowance(time.monotonic())
        self._sparing = False
        self._thread = threading.Thread(target=self._run, name="torchtop-probe", daemon=True)
        self._thread.start()

    def put(self, step: int, marks: Sequence[Mark]) -> None:
        """Queue a finished step. The oldest is lost when nothing has been written for long.

        It becomes a row here, many at a time: on the training thread that would cost much more.
        """
        if len(self.steps) == _QUEUE:
            self._overflowed += self.steps[0][1][-1].steps
        self.steps.append((step, marks))

    def finish(self) -> None:
        """Write what is queued and close.

        At the end of the process, which a disk that does not answer must not hold up.
        """
        self._stop.set()
        self._thread.join(timeout=_PATIENCE_S)
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return
        try:
            self._turn = 0
            # Once more at the end, of which readers of long files see more than of the middle.
            self.inspections.extend(self._inspected)
            self._attempt()
            self._file.close()
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """In a forked child: the file is the parent's.

        The locks are not touched: the thread, which is not here, may have held one.
        """
        self._file.close()

    def _run(self) -> None:
        while not self._said_why:
            if self._stop.wait(_SPARING_INTERVAL_S if self._sparing else _INTERVAL_S):
                return
            with self._lock:
                if not self._stop.is_set():
                    self._attempt()

    def _attempt(self) -> None:
        """Write; a full disk is tried again at the next turn, and anything else ends the probe."""
        try:
            self._write()
        except OSError:
            pass  # what did not get through is counted as dropped
        except Exception as error:
            self._source.disable(error)
            self._say_why()

    def _say_why(self) -> None:
        """The last record of a probe whose own records cannot be made."""
        self._said_why = True
        with contextlib.suppress(Exception):  # rank.py's file has it, too
            self._file.write("probe", dropped=self._dropped, disabled=self._source.disabled)

    @property
    def _dropped(self) -> int:
        return self._overflowed + self._unwritten

    def _write(self) -> None:
        out = self._source.disabled is not None
        self._sparing = self._allowance.is_spent(self._file.written_bytes, time.monotonic())
        while self.facts:
            fact = self.facts[0]
            subject = fact.get("subject"), fact.get("loader")
            if self._told.get(subject) != fact:  # a loader is met again at each epoch
                self._file.write("facts", **fact)
                self._told[subject] = dict(fact)
            self.facts.popleft()
        rows = [self._row(step, marks) for step, marks in _drain(self.steps)]
        if rows:
            self._unwritten += _steps(rows)
            self._choose_stride(rows)
            kept = [row for row in rows if self._is_kept(row)]
            if kept:
                self._file.write("steps", stride=self._stride, **_columns(kept))
            self._file.write("totals", **totals(rows))
            self._unwritten -= _steps(rows)
        self._write_scalars()
        for kind, noted in _drain(self.notes):
            self._file.write(kind, **noted)
        for what, step, start_ns, duration_us in _drain(self.pauses):
            self._file.write(
                "pause", what=what, step=step, start_ns=start_ns, duration_us=duration_us
            )
        self._source.attend()
        for told in _drain(self.inspections):
            self._file.write("inspected", **fields(told))
            self._inspected = [told]
        self._file.write("beat", **self._source.beat())
        if self._turn % _SLOW_EVERY == 0 or out:
            memory = self._source.memory()
            if memory:
                self._file.write("memory", **memory)
            self._file.write("probe", dropped=self._dropped, **self._source.cost())
        self._turn += 1
        self._said_why = out

    def _row(self, step: int, marks: Sequence[Mark]) -> Row:
        row = row_of(step, marks)
        own = self._own.of(marks)
        if own is not None:
            row["own"] = own
        return row

    def _is_kept(self, row: Row) -> bool:
        """Whether a step is recorded: it is one of those, and it was measured."""
        return PHASE_COLUMNS[0] in row and is_recorded(row["step"], self._stride)

    def _write_scalars(self) -> None:
        """All that were told; sparingly, the last of each name."""
        by_step: Dict[int, Dict[str, float]] = {}
        last = 0
        for step, name, value in _drain(self.scalars):
            by_step.setdefault(0 if self._sparing else step, {})[name] = value
            last = step
            self._look_at_loss(step, name, value)
        for step, values in by_step.items():
            self._file.write("scalars", step=last if self._sparing else step, values=values)

    def _look_at_loss(self, step: int, name: str, value: float) -> None:
        """Note the first of the losses that are no numbers any more."""
        if "loss" not in name.lower():
            return
        if math.isfinite(value):
            self._not_finite.discard(name)
        elif name not in self._not_finite:
            self._not_finite.add(name)
            self._file.write("not_finite", step=step, name=name, value=str(value))

    def _choose_stride(self, rows: List[Row]) -> None:
        since, count, spent = self._rate_from
        count += _steps(rows)
        self._seen += _steps(rows)
        self._rate_from = (since, count, spent)
        elapsed = time.monotonic() - since
        first = self._stride == 1 and self._seen == count
        if self._seen < _ALL_OF_THE_FIRST or (elapsed < _RATE_OVER_S and not first):
            return
        spent_now = self._source.spent_ns()
        share = (spent_now - spent) / 1e9 / elapsed
        most = _LEAST_ROWS_PER_S if self._sparing else _MOST_ROWS_PER_S
        self._stride = next_stride(self._stride, count / elapsed, share, most)
        self._rate_from = (time.monotonic(), 0, spent_now)
        self._source.record_one_in(self._stride)


def next_stride(
    stride: int, steps_per_s: float, share: float, most: float = _MOST_ROWS_PER_S
) -> int:
    """One in how many steps to record: a power of two that seldom changes.

    At most about `most` are recorded, and fewer where they cost more than `_BUDGET`, but no fewer
    than `_LEAST_ROWS_PER_S`; or than `_LEAST_OF_ALL_PER_S`, where they cost more than
    `_STEP_BUDGET_S`. Going back needs a rate and a cost well below.

    Args:
        stride: the one in force.
        steps_per_s: steps a second.
        share: the probe's share of the training thread's time at that stride.
        most: rows a second.
    """
    before = stride
    a_step = steps_per_s * _STEP_BUDGET_S
    allowed = min(_BUDGET, a_step)
    while steps_per_s / stride > most or (
        share > allowed
        and steps_per_s / (2 * stride)
        >= (_LEAST_OF_ALL_PER_S if share > a_step else _LEAST_ROWS_PER_S)
    ):
        stride, share = stride * 2, share / _DOUBLING
    if stride > before:
        return stride
    while stride > 1 and steps_per_s / (stride // 2) < 0.7 * most and share * 2 < 0.7 * allowed:
        stride, share = stride // 2, share * 2
    return stride


def _columns(rows: List[Row]) -> Dict[str, Any]:
    """Measured steps as columns."""
    made: Dict[str, Any] = dict(columns(rows, _COLUMNS))
    if any(row.get("unknown_us") for row in rows):
        made.update(columns(rows, list(_UNKNOWN_COLUMNS)))
    names = sorted({name for row in rows for name in row.get("own", ())})
    if names:
        made["own"] = {name: [row.get("own", {}).get(name, 0) for row in rows] for name in names}
    return made


def totals(rows: List[Row]) -> Dict[str, Any]:
    """The fields of a ``totals`` record over successive steps."""
    sums: Dict[str, Any] = {}
    for name in _SUMS:
        values = [row[name] for row in rows if row.get(name) is not None]
        sums[name] = sum(values) if values else None
    return {
        "from_step": rows[0]["step"],
        "to_step": rows[-1]["step"] + rows[-1].get("steps", 1),
        "steps": _steps(rows),
        "phase_steps": sum(PHASE_COLUMNS[0] in row for row in rows),
        **sums,
        **_rare_sums(rows),
    }


def _steps(rows: List[Row]) -> int:
    """How many steps the rows stand for."""
    return sum(row.get("steps", 1) for row in rows)


def _rare_sums(rows: List[Row]) -> Dict[str, Any]:
    """What most runs have nothing of."""
    told: Dict[str, Any] = {}
    own: Dict[str, int] = {}
    unknown = sum(row.get("unknown_us", 0) for row in rows)
    for row in rows:
        for name, spent in row.get("own", {}).items():
            own[name] = own.get(name, 0) + spent
    if unknown:
        told["unknown_us"] = unknown
    if own:
        told["own_us"] = own
    return told


def _drain(queue: "Deque[Any]") -> List[Any]:
    """Everything in the queue now; what is appended meanwhile waits for the next turn."""
    return [queue.popleft() for _ in range(len(queue))]
