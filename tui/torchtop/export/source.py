"""A session's records for those who write them anew: as streams, with times of one clock."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torchtop.session.launches import newest
from torchtop.session.load import Loaded
from torchtop.session.paths import SessionPaths, safe_name
from torchtop.session.records import Record
from torchtop.session.tail import Tail
from torchtop.session.values import children, number

_PIECE = 1 << 20
"""Bytes that are read at a time."""

_HEADER_BYTES = 16 << 10

_KINDS = ("facts", "steps", "totals", "beat", "pause", "scalars", "memory", "probe", "processes")
"""What makes up most of a file, by kind."""

_STAMP = re.compile(rb'\{"kind":"\w+","seq":\d+,"mono_ns":(\d+),')
"""How every record begins that torchtop has written."""

_LAST_BYTES = 64 << 10
"""Where the last record of a file is."""


@dataclass(frozen=True)
class RankFile:
    """One rank's records.

    Attributes:
        rank: its number.
        host: where it ran.
        path: the probe's file.
        header: the file's first record.
    """

    rank: int
    host: str
    path: Path
    header: Mapping[str, Any]

    @property
    def device(self) -> str:
        """The device in words."""
        device = self.header.get("device")
        told = device if isinstance(device, Mapping) else {}
        return str(told.get("name") or told.get("type") or "device unknown")


class Source:
    """A session to export.

    Args:
        loaded: the session.
        last_s: only what happened in the last so many seconds of training; all of it where None.
    """

    def __init__(self, loaded: Loaded, last_s: float | None = None) -> None:
        self.loaded = loaded
        self._offsets: dict[str, int] = {}
        self._first_ns: int | None = None
        for path in [node.events for node in self.paths.nodes()]:
            self._learn_clock(path, path.parent.name)
        for rank in self.ranks():
            self._learn_clock(rank.path, rank.host)
        self._since_ns = None if last_s is None else self.end_ns - round(last_s * 1e9)

    def _learn_clock(self, path: Path, host: str) -> None:
        """How far a host's monotonic clock is from Unix time, by the first file that tells."""
        header = header_of(path)
        wall_s, mono_ns = number(header.get("wall_s")), number(header.get("mono_ns"))
        if wall_s is not None and mono_ns is not None:
            self._offsets.setdefault(host, round(wall_s * 1e9) - round(mono_ns))
            self._first_ns = self._first_ns or round(wall_s * 1e9)

    @cached_property
    def end_ns(self) -> int:
        """When the last rank wrote its last record (Unix time)."""
        ends = (
            self.unix_ns(record.get("mono_ns"), rank.host)
            for rank in self.ranks()
            for record in Tail(rank.path, last_bytes=_LAST_BYTES).poll()[-1:]
        )
        return max(ends, default=self.start_ns)

    @property
    def paths(self) -> SessionPaths:
        """The session's directory."""
        return self.loaded.paths

    @property
    def start_ns(self) -> int:
        """When the session began (Unix time)."""
        started_s = number(self.loaded.meta.get("wall_s"))
        return self._first_ns or 0 if started_s is None else round(started_s * 1e9)

    def unix_ns(self, mono_ns: Any, host: str | None = None) -> int:
        """A record's time as Unix time in nanoseconds; the session's start where it has none.

        Args:
            mono_ns: its monotonic time.
            host: whose clock it is; that of the first node, which analyses, where None.
        """
        first = safe_name(str(self.loaded.meta.get("host", "")))
        default = self._offsets.get(first, next(iter(self._offsets.values()), 0))
        stamp = number(mono_ns)
        offset = self._offsets.get(host or "", default)
        return self.start_ns if stamp is None else round(stamp) + offset

    def ranks(self) -> list[RankFile]:
        """The probes' files of the last launch, each rank's in its last attempt, by rank."""
        try:
            files = sorted(self.paths.ranks.glob("*.jsonl"))
        except OSError:
            files = []
        probes = (path for path in files if not path.name.endswith(".process.jsonl"))
        told = [(path, header_of(path)) for path in probes]
        return [
            RankFile(rank, safe_name(str(header.get("host", ""))), path, header)  # a node's folder
            for rank, (path, header) in newest(told, lambda each: each[1]).items()
        ]

    def samplers(self) -> Iterator[tuple[str, Path, list[Mapping[str, Any]]]]:
        """Each node's host, the file of its sampler, and the facts of its GPUs."""
        for node in self.paths.nodes():
            facts = children(header_of(node.devices), "gpus")
            yield node.root.name, node.devices, facts

    def analyses(self) -> Iterator[Record]:
        """What the analyst told, once a second."""
        return self.records(self.paths.analysis, None, "analysis")

    def records(self, path: Path, host: str | None, *kinds: str) -> Iterator[Record]:
        """A file's records of some kinds, from the time on that was asked for.

        Args:
            path: the file.
            host: whose clock its times are told by; that of the analysis where None.
            *kinds: those that are wanted; the others are passed over, most of them unread.
        """
        since = self._since_ns
        start = 0
        if since is not None:
            start = _offset_of(path, lambda mono_ns: self.unix_ns(mono_ns, host) >= since)
        unread = tuple(kind for kind in _KINDS if kind not in kinds)
        for record in stream(path, start, unread):
            if record["kind"] in kinds and (
                since is None or self.unix_ns(record.get("mono_ns"), host) >= since
            ):
                yield record


def header_of(path: Path) -> Mapping[str, Any]:
    """The first record of a file; empty where there is none."""
    for record in stream(path, piece=_HEADER_BYTES):
        return record if record["kind"] == "header" else {}
    return {}


def stream(
    path: Path, start: int = 0, unread: tuple[str, ...] = (), piece: int = _PIECE
) -> Iterator[Record]:
    """The whole records of a file, piece by piece.

    Args:
        path: the file.
        start: where in it to begin, after its head.
        unread: kinds to pass over.
        piece: bytes that are read at a time.
    """
    try:
        last_bytes = path.stat().st_size - start if start else None
    except OSError:
        return
    tail, size = Tail(path, last_bytes, unread), -1
    while size != (size := tail.offset):
        yield from tail.poll(piece)


def _offset_of(path: Path, is_late: Callable[[int], bool]) -> int:
    """Where in a file of records, which lie in order of time, the late ones begin, or before.

    By halves: a day's file is hundreds of megabytes, and its last minutes are wanted.
    """
    try:
        with path.open("rb") as file:
            low, high = 0, os.fstat(file.fileno()).st_size
            while high - low > _PIECE:
                middle = (low + high) // 2
                file.seek(middle)
                file.readline(_PIECE)
                lines = (file.readline(_PIECE) for _ in range(2))  # one may be given back
                found = next(filter(None, map(_STAMP.match, lines)), None)
                if found is None:
                    return low  # a hole, or something that is no record: read from before it
                if is_late(int(found[1])):
                    high = middle
                else:
                    low = middle
            return low
    except OSError:
        return 0
