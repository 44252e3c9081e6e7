"""Python stacks of ranks that hang: each writes its own when the supervisor asks for them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchtop.launch import processes
from torchtop.launch.journal import Journal
from torchtop.launch.ranks import WatchedRank
from torchtop.session.paths import SessionPaths

_FILE_LIMIT_BYTES = 1 << 20
"""A dump of 30 threads takes about 50 kB; a file larger than this begins anew before the next."""

_AT_MOST_EVERY_S = 1.0
"""Viewers that ask at the same time get the same dump."""


class Stacks:
    """Asks ranks for their stacks, and tells where they are.

    rank.py has faulthandler write them on SIGUSR2, without the interpreter's help: it works in a
    rank that waits in a collective. To a process without a handler that signal is deadly, so it is
    sent to those alone that catch it.

    Args:
        paths: the session.
        events: where a ``stacks`` record tells who asked and where the answers begin.
    """

    def __init__(self, paths: SessionPaths, events: Journal) -> None:
        self._paths = paths
        self._events = events
        self._next_s = 0.0

    def ask(self, ranks: Iterable[WatchedRank], requested_by: str) -> None:
        """Have every living rank write its stacks, unless that was done just now."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _AT_MOST_EVERY_S
        asked: list[dict[str, Any]] = []
        silent: list[int] = []
        # A process that has replaced its program is there twice, and has one file.
        for rank in {rank.pid: rank for rank in ranks}.values():
            if rank.gone_ns is not None:
                continue
            file = self._paths.ranks / rank.stacks_file
            offset = _room(file)
            if (
                offset is not None
                and processes.catches(rank.pid, signal.SIGUSR2)
                and processes.send(rank.pid, rank.start_ticks, signal.SIGUSR2)
            ):
                where = str(file.relative_to(self._paths.root))
                asked.append({"rank": rank.rank, "file": where, "offset": offset})
            else:
                silent.append(rank.rank)
        self._events.write("stacks", requested_by=requested_by, ranks=asked, silent=silent)


def _room(file: Path) -> int | None:
    """Where the next dump will begin in a file; None where the rank has none."""
    try:
        size = file.stat().st_size
        if size > _FILE_LIMIT_BYTES:
            os.truncate(file, 0)
            return 0
    except OSError:
        return None
    return size
