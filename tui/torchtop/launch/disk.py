"""The room on the disk that a session is on: told when it gets little, and logs kept in bounds.

Telemetry stops by itself while less than `room.RESERVE_BYTES` are free (each writer looks), so
that what is left goes to logs and checkpoints.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from torchtop.launch.journal import Journal
from torchtop.session.paths import SessionPaths
from torchtop.session.room import RESERVE_BYTES
from torchtop.session.thinning import punch

LOW_BYTES = 512 << 20
"""Own choice: five days of one rank's records (100 MB a day), or an hour of a talkative log."""

_HYSTERESIS = 1.25
_EVERY_S = 2.0

LOG_BYTES = 256 << 20
"""Own choice: what one log may take of the disk; its beginning and its end are kept."""

RECORD_BYTES = 1 << 30
"""The same for a file of records, which are five days of the largest; readers pass over the gap."""

_KEPT_HEAD_BYTES = 4 << 20
_RECORDS = ("ranks/*.jsonl", "nodes/*/devices.jsonl", "analysis.jsonl")
_BLOCK_BYTES = 4096
_STAT_BLOCK_BYTES = 512


class DiskWatch:
    """Looks at the disk and at the logs every few seconds.

    Args:
        paths: the session.
        events: where ``disk`` and ``log_cut`` records go.
        log_bytes: how much of the disk a log may take.
        record_bytes: how much a file of records may take.
    """

    def __init__(
        self,
        paths: SessionPaths,
        events: Journal,
        log_bytes: int = LOG_BYTES,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        self._paths = paths
        self._events = events
        self._log_bytes = log_bytes
        self._record_bytes = record_bytes
        self._level = "ok"
        self._next_s = 0.0

    def look(self) -> None:
        """Look, if it is time to.

        Raises:
            OSError: the session directory is gone.
        """
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _EVERY_S
        free = shutil.disk_usage(self._paths.root).free
        if (level := level_of(free, self._level)) != self._level:
            self._level = level
            self._events.write("disk", free_bytes=free, level=level, telemetry=level != "full")
        for log in self._paths.logs.rglob("*.log"):
            self._cut(log, self._log_bytes)
        for pattern in _RECORDS:
            for file in self._paths.root.glob(pattern):
                self._cut(file, self._record_bytes)

    def _cut(self, log: Path, limit: int) -> None:
        """Give back the middle of a file that takes too much of the disk.

        torchrun's redirection writes at an offset of its own: a log that is made shorter would come
        back as long as before, with zeros. So its size stays.
        """
        status = log.stat()
        if status.st_blocks * _STAT_BLOCK_BYTES <= limit:
            return
        kept_tail = limit // 2
        start = min(_KEPT_HEAD_BYTES, limit // 4)
        end = (status.st_size - kept_tail) // _BLOCK_BYTES * _BLOCK_BYTES
        if end > start and punch(log, start, end):
            file = str(log.relative_to(self._paths.root))
            self._events.write("log_cut", file=file, from_byte=start, to_byte=end)


def level_of(free_bytes: int, before: str) -> str:
    """How much room there is: ``ok``, ``low`` or ``full``; a level is left with some to spare."""
    low = LOW_BYTES * (1 if before == "ok" else _HYSTERESIS)
    full = RESERVE_BYTES * (_HYSTERESIS if before == "full" else 1)
    return "full" if free_bytes < full else "low" if free_bytes < low else "ok"
