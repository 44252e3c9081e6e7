"""Session directories made with the real writer, for tests of what reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionPaths
from torchtop.session.records import Appender

HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def session(root: Path, name: str = "made", **meta: Any) -> SessionPaths:
    """An empty session directory with a ``session.json``."""
    paths = SessionPaths(root)
    for folder in (paths.ranks, paths.logs, paths.stage, paths.node("host-a").requests):
        folder.mkdir(parents=True)
    described = {"schema": 1, "id": root.name, "name": name, "device": "cpu", "nproc": 2}
    paths.meta.write_text(json.dumps({**described, **meta}))
    return paths


def kept(home: Path, session_id: str, **meta: Any) -> SessionPaths:
    """One that lies where those of a state directory do."""
    return session(home / "sessions" / session_id, **meta)


def write(path: Path, role: str, *records: dict[str, Any], **header: Any) -> None:
    """A file of records, each a dict with its ``kind``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    appender = Appender(path, role, **header)
    for record in records:
        appender.write(**record)
    appender.close()


@contextmanager
def held_lock(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock while the block runs; it ends with its standard input."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        yield holder
    finally:
        holder.communicate()
