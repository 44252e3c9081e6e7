"""Which files of a session's ranks count: those of the last launch, and in it each rank's last.

A command may launch training several times, one after the other, and the last launch is what its
session is of. What a launcher starts anew when a rank has failed goes on with the same launch. This
is the one rule for that, which live and all that read a session afterwards go by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torchtop.session.values import number

File = TypeVar("File")


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


def newest(
    files: Iterable[File], header_of: Callable[[File], Mapping[str, Any]]
) -> dict[int, File]:
    """The probes' files that count, by rank; those whose header names no rank do not.

    Args:
        files: all that there are; of two that are equally late the later one here counts.
        header_of: a file's header, in which other numbers may be damaged.
    """
    found: dict[int, tuple[tuple[int, int, float], File]] = {}
    for file in files:
        header = header_of(file)
        rank = header.get("rank")
        if not isinstance(rank, int):
            continue
        known = {name: number(header.get(name)) for name in ("attempt", "wall_s")}
        when = started({**header, **known})
        if rank not in found or when >= found[rank][0]:
            found[rank] = when, file
    last = last_launch(header_of(file) for _, file in found.values())
    ordered = ((rank, file) for rank, (_, file) in sorted(found.items(), key=lambda each: each[0]))
    return {rank: file for rank, file in ordered if launch_of(header_of(file)) == last}
