"""How a record becomes a line of a file, and a file one writer's."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import time
from pathlib import Path
from typing import Any, Dict, Optional

from . import room

SCHEMA = 1

Record = Dict[str, Any]


def encode(record: Record) -> bytes:
    """One record as a line of JSON; non-finite numbers become null, strange objects their text."""
    try:
        text = json.dumps(record, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(finite(record), separators=(",", ":"), allow_nan=False, default=str)
    return text.encode("ascii") + b"\n"


def finite(value: Any) -> Any:
    """The same value, in which each number that JSON has no word for is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def boot_id() -> Optional[str]:
    """The kernel's boot id: monotonic clocks compare only within one boot of one host."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def start_ticks(pid: int) -> Optional[int]:
    """When a process started, in clock ticks since boot: with the pid, its identity.

    Returns:
        None when there is no such process.
    """
    try:
        stat = Path("/proc/%d/stat" % pid).read_bytes()
        return int(stat[stat.rindex(b")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return None


class Appender:
    """The single writer of one JSON Lines file.

    Args:
        path: created with O_EXCL; the directory must exist.
        role: who writes, for the header.
        reserve_bytes: write only while the disk has more than this left; looked at every 5 s.
        room_bytes: so much of the file has its place on the disk from the start, where the file
            system can do that: it can be written when the disk is full.
        **facts: further fields of the header.

    Raises:
        OSError: the file exists already or cannot be created.
    """

    def __init__(
        self,
        path: "os.PathLike[str]",
        role: str,
        reserve_bytes: int = 0,
        room_bytes: int = 0,
        **facts: Any,
    ) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(os.fspath(path), flags, 0o600)
        self._seq = 0
        self.written_bytes = 0
        self._torn = False
        self._room_bytes = room_bytes
        self._reserve: Optional[room.Reserve] = None
        if room_bytes:
            room.set_aside(self._fd, room_bytes)
        pid = os.getpid()
        try:
            self.write(
                "header",
                role=role,
                schema=SCHEMA,
                wall_s=time.time(),
                boot_id=boot_id(),
                host=socket.gethostname(),
                pid=pid,
                pid_start_ticks=start_ticks(pid),
                **facts,
            )
        except OSError:
            self.close()
            raise
        if reserve_bytes:
            self._reserve = room.Reserve(self._fd, reserve_bytes)

    def write(self, kind: str, mono_ns: Optional[int] = None, **fields: Any) -> None:
        """Append one record, in one system call.

        A record that could not be written, or only in part, is lost: its `seq` is missing in the
        file. What is left of it is ended before the next record, which it would spoil.

        Args:
            kind: the record's kind.
            mono_ns: its time; now when omitted.
            **fields: the rest of the record.

        Raises:
            OSError: the disk is full, or as full as it may become, or the file is closed.
        """
        stamp = time.monotonic_ns() if mono_ns is None else mono_ns
        record = {"kind": kind, "seq": self._seq, "mono_ns": stamp}
        record.update(fields)
        self._seq += 1
        if self._reserve is not None and self._reserve.is_touched():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        line = (b"\n" if self._torn else b"") + encode(record)
        written = os.write(self._fd, line)
        self.written_bytes += written
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._fd >= 0:
            if self._room_bytes:
                room.give_back(self._fd)
            os.close(self._fd)
            self._fd = -1
