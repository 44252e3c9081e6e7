"""Reading session files while they grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchtop.session.paths import SessionPaths
from torchtop.session.records import GIVEN_BACK, SCHEMA, Record, encode
from torchtop.session.values import decode

_CHUNK = 1 << 20
_LEAST = 64 << 10
_LINE_LIMIT = 8 << 20
"""A line longer than this is no record of ours: it is dropped while it streams by."""

_HEAD_BYTES = 64 << 10
"""What is read of the start of a file of which only the last part is wanted: its header, and the
facts that come with the first steps."""


class Tail:
    """The newline-ended records of one file, each given once.

    Lines that do not parse are counted in `bad` and skipped; an unfinished last line waits. A file
    that is absent, or vanishes, yields nothing; one that became shorter yields nothing until it has
    grown past what was read.

    Args:
        path: the file.
        last_bytes: begin with the file's head (the header and the first facts) and go on about this
            many bytes before its end, for a view that needs only the recent part of a long file;
            all of it when omitted.
        without: kinds of records to pass over, unread: they cost a hundredth of the others.
        offset: begin there, at the start of a line.
    """

    def __init__(
        self,
        path: Path,
        last_bytes: int | None = None,
        without: tuple[str, ...] = (),
        offset: int = 0,
    ) -> None:
        self.path = path
        self._passed_over = (GIVEN_BACK, *(_first_bytes(kind) for kind in without))
        self.bad = 0
        self.newer_schema = False
        self._offset = offset
        self._rest = b""
        self._last_bytes = last_bytes

    @property
    def offset(self) -> int:
        """How much of the file has been read, in bytes."""
        return self._offset

    def poll(self, limit: int | None = None) -> list[Record]:
        """The records that were completed since the last call.

        Args:
            limit: read at most about this many bytes (for a reader that must stay responsive).
        """
        records = self._jump()
        taken = 0
        while limit is None or taken < limit:
            data = self._read(_CHUNK if limit is None else max(_LEAST, min(_CHUNK, limit - taken)))
            if not data:
                break
            taken += len(data)
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            if len(self._rest) > _LINE_LIMIT:
                self._rest = b"\x00"
            for line in lines:
                if record := self._parse(line):
                    records.append(record)
        return records

    def _jump(self) -> list[Record]:
        """Once: the head alone, and on to the last part of a file that is long."""
        if self._last_bytes is None or self._offset:
            return []
        try:
            with self.path.open("rb") as file:
                start = os.fstat(file.fileno()).st_size - self._last_bytes
                head = file.read(min(max(start, 0), _HEAD_BYTES))
                if b"\n" not in head:
                    return []
                file.seek(start)
                file.readline(_LINE_LIMIT)
                self._offset = file.tell()
        except OSError:
            return []
        lines = head[: head.rindex(b"\n")].split(b"\n")
        return [record for line in lines if (record := self._parse(line))]

    def _read(self, size: int) -> bytes:
        try:
            with self.path.open("rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    return b""
                file.seek(self._offset)
                data = file.read(size) or b""
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def _parse(self, line: bytes) -> Record | None:
        if not line.strip() or line.startswith(self._passed_over):  # GIVEN_BACK among them
            return None
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            self.bad += 1
            return None
        if not _is_record(record):
            self.bad += 1
            return None
        schema = record.get("schema")
        if record["kind"] == "header" and isinstance(schema, int) and schema > SCHEMA:
            self.newer_schema = True
        return record  # type: ignore[no-any-return]


def _first_bytes(kind: str) -> bytes:
    """What a line begins with that `encode` made of a record of this kind."""
    return encode({"kind": kind}).rstrip()[:-1] + b","


def _is_record(value: object) -> bool:
    """Whether a JSON value has what readers take for granted of a record."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("seq", 0), int)
        and isinstance(value.get("mono_ns", 0), int)
    )


@dataclass
class SessionTail:
    """All record files of a session directory, found as they appear.

    Attributes:
        paths: the session.
        skip: path endings to leave out (the analyst does not read its own output).
        last_bytes: as in `Tail`, for the files that grow by the second.
        rank_bytes: the same for the ranks' files, of which the last state counts.
        without: as in `Tail`.
    """

    paths: SessionPaths
    skip: tuple[str, ...] = ()
    last_bytes: int | None = None
    rank_bytes: int | None = None
    without: tuple[str, ...] = ()
    _tails: dict[str, Tail] = field(default_factory=dict)

    def poll(self) -> Iterator[tuple[str, Record]]:
        """Each new record with its file's path relative to the session, file by file."""
        self._discover()
        for source, tail in self._tails.items():
            for record in tail.poll():
                yield source, record

    @property
    def bad(self) -> int:
        """Lines that could not be read, over all files."""
        return sum(tail.bad for tail in self._tails.values())

    @property
    def newer_schema(self) -> bool:
        """Whether a file was written by a newer torchtop than this one."""
        return any(tail.newer_schema for tail in self._tails.values())

    def _discover(self) -> None:
        # Headers first, then what refers to them: nodes, ranks, and the analyst's last.
        for pattern in ("nodes/*/*.jsonl", "ranks/*.jsonl", "*.jsonl"):
            try:
                found = sorted(self.paths.root.glob(pattern))
            except OSError:
                continue
            for path in found:
                source = str(path.relative_to(self.paths.root))
                if source not in self._tails and not source.endswith(self.skip or ("\0",)):
                    growing = source.endswith(("devices.jsonl", "analysis.jsonl"))
                    last_bytes = self.last_bytes if growing else None
                    last_bytes = self.rank_bytes if source.startswith("ranks/") else last_bytes
                    self._tails[source] = Tail(path, last_bytes, self.without)
