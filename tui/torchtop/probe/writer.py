"""The one thread of the probe: it writes what the training thread has queued, twice a second.

It touches no CUDA work queue and never holds the training thread up; after a fork it does not
exist in the child.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from ..session.records import HOST_COLUMNS, PHASE_COLUMNS, Appender, columns, is_recorded
from .assemble import Row

_INTERVAL_S = 0.5
_SLOW_EVERY = 10
"""Memory and cost are written once in so many turns: reading memory statistics takes 80 us."""

_MOST_ROWS_PER_S = 20.0
_QUEUE = 16384
_COLUMNS = [
    "step",
    "end_ns",
    "host_us",
    *PHASE_COLUMNS,
    *HOST_COLUMNS,
    "lag_forward_us",
    "lag_backward_us",
    "lag_width_us",
    "samples",
    "tokens",
]
_SUMS = ("host_us", *PHASE_COLUMNS, "data_host_us", "samples", "tokens")


class Writer:
    """Queues filled by the training thread, and the thread that empties them into a file.

    Args:
        path: the rank's file; created now, with O_EXCL.
        header: further fields of the header.
        beat: gives marker, marker_ns, step, ready.
        memory: gives the fields of a ``memory`` record, or None where there is no CUDA.
        cost: gives cost_us, steps and disabled since the last call.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(
        self,
        path: Path,
        header: Dict[str, Any],
        beat: Callable[[], Dict[str, Any]],
        memory: Callable[[], Optional[Dict[str, Any]]],
        cost: Callable[[], Dict[str, Any]],
    ) -> None:
        self.rows: Deque[Row] = deque(maxlen=_QUEUE)
        self.scalars: Deque[Tuple[int, str, float]] = deque(maxlen=_QUEUE)
        self.facts: Deque[Dict[str, Any]] = deque(maxlen=_QUEUE)
        self.dropped = 0
        self._file = Appender(path, "rank", **header)
        self._beat, self._memory, self._cost = beat, memory, cost
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._stride = 1
        self._turn = 0
        self._rate_from = (time.monotonic(), 0)
        self._thread = threading.Thread(target=self._run, name="torchtop-probe", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        """Queue a finished step. The oldest is lost when nothing has been written for long."""
        if len(self.rows) == _QUEUE:
            self.dropped += 1
        self.rows.append(row)

    def finish(self) -> None:
        """Write what is queued and close; at the end of the process."""
        self._stop.set()
        self._thread.join(timeout=2.0)
        with self._lock:
            try:
                self._turn = 0
                self._write()
            except OSError:
                pass
            self._file.close()

    def abandon(self) -> None:
        """In a forked child: the file is the parent's."""
        self._stop.set()
        self._file.close()

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            with self._lock:
                if self._stop.is_set():
                    return
                try:
                    self._write()
                except Exception:
                    return  # disk full or directory gone: training goes on, unwatched

    def _write(self) -> None:
        for fact in _drain(self.facts):
            self._file.write("facts", **fact)
        rows = _drain(self.rows)
        if rows:
            self._choose_stride(rows)
            kept = [row for row in rows if is_recorded(row["step"], self._stride)]
            if kept:
                self._file.write("steps", None, stride=self._stride, **columns(kept, _COLUMNS))
            self._file.write("totals", **totals(rows))
        self._write_scalars()
        self._file.write("beat", **self._beat())
        if self._turn % _SLOW_EVERY == 0:
            memory = self._memory()
            if memory:
                self._file.write("memory", **memory)
            self._file.write("probe", dropped=self.dropped, **self._cost())
        self._turn += 1

    def _write_scalars(self) -> None:
        by_step: Dict[int, Dict[str, float]] = {}
        for step, name, value in _drain(self.scalars):
            by_step.setdefault(step, {})[name] = value
        for step, values in by_step.items():
            self._file.write("scalars", step=step, values=values)

    def _choose_stride(self, rows: List[Row]) -> None:
        """Keep at most about 20 steps a second, by a power of two that seldom changes."""
        since, count = self._rate_from
        count += len(rows)
        elapsed = time.monotonic() - since
        self._rate_from = (since, count)
        if elapsed < 5.0:
            return
        rate = count / elapsed
        self._rate_from = (time.monotonic(), 0)
        while rate / self._stride > _MOST_ROWS_PER_S:
            self._stride *= 2
        while self._stride > 1 and rate / (self._stride // 2) < 0.7 * _MOST_ROWS_PER_S:
            self._stride //= 2


def totals(rows: List[Row]) -> Dict[str, Any]:
    """The fields of a ``totals`` record over successive steps."""
    sums: Dict[str, Any] = {}
    for name in _SUMS:
        values = [row[name] for row in rows if row[name] is not None]
        sums[name] = sum(values) if values else None
    return {
        "from_step": rows[0]["step"],
        "to_step": rows[-1]["step"] + 1,
        "steps": len(rows),
        "phase_steps": len(rows),
        **sums,
    }


def _drain(queue: "Deque[Any]") -> List[Any]:
    """Everything in the queue now; what is appended meanwhile waits for the next turn."""
    return [queue.popleft() for _ in range(len(queue))]
