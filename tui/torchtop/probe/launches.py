"""Which of a command's launches a rank belongs to.

A script may start one torchrun after the other. Each such launch is an attempt of the session, and
all ranks of one have to give it the same number, without talking: they write themselves into a list
under a lock. When torchrun starts its ranks anew, that is a further attempt of the same launch.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..session.records import start_ticks

FILE = "launches.json"


class Joined(NamedTuple):
    """The attempt that a rank belongs to.

    Attributes:
        attempt: its number, from 0.
        first: the attempt with which its launch began.
    """

    attempt: int
    first: int


def key_of(world_size: int) -> str:
    """What the ranks of one launch have in common, from the environment that it gave them."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    parts = [str(world_size), *(os.environ.get(name, "") for name in names)]
    if not os.environ.get("MASTER_PORT"):
        parts.append(str(os.getppid()))
    return "|".join(parts)


def restarted() -> Optional[str]:
    """Of what launch this process is a restart; None where its launch has not been restarted."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") in ("", "0"):
        return None
    return os.environ.get("TORCHELASTIC_RUN_ID", "")


def join(directory: Path, key: str, rank: int, restart: Optional[str] = None) -> Joined:
    """Enter the latest launch of that key, or a new one.

    A launch takes each rank once, and only while one of its ranks is alive.

    Args:
        directory: the session's ``ranks`` folder.
        key: as `key_of`.
        rank: this process's.
        restart: as `restarted`.

    Raises:
        OSError: the list cannot be written.
        ValueError: it cannot be read.
    """
    fd = os.open(str(directory / FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        launches = json.loads(_read(fd) or b"[]")
        number = _fitting(launches, key, rank, restart)
        launches[number]["ranks"].append([rank, os.getpid(), start_ticks(os.getpid())])
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(launches).encode("ascii"), 0)
        return Joined(number, launches[number].get("first", number))
    finally:
        os.close(fd)


def _read(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _fitting(launches: List[Dict[str, Any]], key: str, rank: int, restart: Optional[str]) -> int:
    for number in range(len(launches) - 1, -1, -1):
        launch = launches[number]
        if launch["key"] != key:
            continue
        free = all(entry[0] != rank for entry in launch["ranks"])
        if free and any(start_ticks(entry[1]) == entry[2] for entry in launch["ranks"]):
            return number
        break
    first = len(launches)
    if restart is not None:
        before = (launch["first"] for launch in reversed(launches) if launch["run"] == restart)
        first = next(before, first)
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    launches.append({"key": key, "run": run, "first": first, "ranks": []})
    return len(launches) - 1
