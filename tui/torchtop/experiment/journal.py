"""The runs of a sweep as they were made, on disk: what a killed sweep goes on from."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from torchtop.session.paths import SessionError, SessionPaths, list_sessions, read_json
from torchtop.session.records import finite
from torchtop.session.sweeps import SweepPaths


class Journal:
    """``runs.jsonl`` of a sweep, of which one process at a time is the writer.

    Args:
        paths: the sweep.

    Attributes:
        runs: what has ended, by cell, in the order in which it was started.

    Raises:
        SessionError: another process measures it, or the directory cannot be written.
    """

    def __init__(self, paths: SweepPaths) -> None:
        self.paths = paths
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self._open: dict[str, str] = {}
        """Cells of sessions that were started and have not ended, as far as was written down."""
        self._lock = _take(paths)
        for line in _lines(paths.runs):
            self._apply(line)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    def started(self, cell: str, session: str) -> None:
        """A session of a cell has been started."""
        self._write({"kind": "started", "cell": cell, "session": session})

    def ended(self, cell: str, run: dict[str, Any]) -> None:
        """It has ended."""
        self._write({"kind": "ended", "cell": cell, **run})

    def forget_failures(self) -> int:
        """Let cells that have failed be tried again; returns how many there were."""
        failed = [c for c, runs in self.runs.items() if any(r["status"] == "failed" for r in runs)]
        if failed:
            self._write({"kind": "again", "cells": failed})
        return len(failed)

    def unfinished(self) -> list[tuple[str, SessionPaths]]:
        """Sessions that were started for a cell, and not written down as ended."""
        known = {run["session"] for runs in self.runs.values() for run in runs}
        found = []
        for paths in list_sessions():
            told = (read_json(paths.meta) or {}).get("sweep") or {}
            cell = self._open.get(paths.id)
            # A process may be killed between the start of a session and the note of it.
            if cell is None and isinstance(told, dict) and told.get("id") == self.paths.id:
                cell = str(told.get("cell"))
            if cell is not None and paths.id not in known:
                found.append((cell, paths))
        return found[::-1]

    def _write(self, fact: dict[str, Any]) -> None:
        text = json.dumps(finite(fact), allow_nan=False, default=str)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            file = os.open(self.paths.runs, flags, 0o600)
            try:
                os.write(file, text.encode() + b"\n")
            finally:
                os.close(file)
        except OSError as error:
            raise SessionError(f"cannot write {self.paths.runs}: {error.strerror}") from None
        self._apply(json.loads(text))

    def _apply(self, fact: dict[str, Any]) -> None:
        kind, cell = fact.get("kind"), str(fact.get("cell"))
        if kind == "started":
            self._open[str(fact.get("session"))] = cell
        elif kind == "ended":
            self._open.pop(str(fact.get("session")), None)
            run = {k: v for k, v in fact.items() if k not in ("kind", "cell")}
            self.runs.setdefault(cell, []).append(run)
        elif kind == "again":
            for name in fact.get("cells") or ():
                runs = self.runs.get(name, [])
                self.runs[name] = [run for run in runs if run.get("status") != "failed"]


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines; the torn end of a killed process is passed over."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            continue
        if isinstance(fact, dict):
            found.append(fact)
    return found


def _take(paths: SweepPaths) -> int:
    try:
        lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SessionError(f"cannot write in {paths.root}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise SessionError(f"{paths.id} is being measured by another process") from None
    return lock
