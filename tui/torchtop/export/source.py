"""A session's records for those who write them anew: as streams, with times of one clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torchtop.session.load import Loaded
from torchtop.session.paths import SessionPaths, safe_name
from torchtop.session.records import Record
from torchtop.session.tail import Tail
from torchtop.session.values import children, number

_PIECE = 1 << 20
"""Bytes that are read at a time."""

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
        """The probes' files of each rank's last attempt, by rank."""
        found: dict[int, tuple[int, RankFile]] = {}
        try:
            files = sorted(self.paths.ranks.glob("*.jsonl"))
        except OSError:
            files = []
        for path in files:
            header = header_of(path)
            rank, attempt = header.get("rank"), number(header.get("attempt")) or 0
            if path.name.endswith(".process.jsonl") or not isinstance(rank, int):
                continue
            if rank not in found or attempt >= found[rank][0]:
                host = safe_name(str(header.get("host", "")))  # as its node's folder is called
                file = RankFile(rank, host, path, header)
                found[rank] = (int(attempt), file)
        return [file for _, (_, file) in sorted(found.items())]

    def samplers(self) -> Iterator[tuple[str, Path, list[Mapping[str, Any]]]]:
        """Each node's host, the file of its sampler, and the facts of its GPUs."""
        for node in self.paths.nodes():
            facts = children(header_of(node.devices), "gpus")
            yield node.root.name, node.devices, facts

    def records(self, path: Path, host: str | None = None) -> Iterator[Record]:
        """The records of a file after its header, from the time on that was asked for."""
        since = self._since_ns
        for record in stream(path):
            if record["kind"] != "header" and (
                since is None or self.unix_ns(record.get("mono_ns"), host) >= since
            ):
                yield record


def header_of(path: Path) -> Mapping[str, Any]:
    """The first record of a file; empty where there is none."""
    for record in stream(path):
        return record if record["kind"] == "header" else {}
    return {}


def stream(path: Path) -> Iterator[Record]:
    """The whole records of a file, piece by piece."""
    tail, size = Tail(path), -1
    while size != (size := tail.offset):
        yield from tail.poll(_PIECE)
