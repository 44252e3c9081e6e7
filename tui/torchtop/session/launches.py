"""Which files of a session's ranks count: those of the last launch, and in it each rank's last.

A command may launch training several times, one after the other, and the last launch is what its
session is of. What a launcher starts anew when a rank has failed goes on with the same launch. This
is the one rule for that, which live and all that read a session afterwards go by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def launch_of(record: Mapping[str, Any]) -> int:
    """The launch that a rank's header or a ``minute`` is of: later ones have greater numbers."""
    first = record.get("first_attempt")
    return first if isinstance(first, int) else 0


def last_launch(records: Iterable[Mapping[str, Any]]) -> int:
    """The last launch that any of these is of; 0 where there is none."""
    return max(map(launch_of, records), default=0)


def started(header: Mapping[str, Any]) -> tuple[int, int, float]:
    """What orders the files of one rank, by their headers: the greatest counts.

    Raises:
        TypeError, ValueError: the header is damaged.
    """
    attempt, wall_s = int(header.get("attempt") or 0), float(header.get("wall_s") or 0.0)
    if "launch" in header:  # a command's process, which counts only the restarts of its launch
        attempt = 0
    return launch_of(header), attempt, wall_s
