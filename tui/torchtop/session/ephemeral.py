"""Sessions that nobody wants to keep: in a temporary directory, removed when they were shown.

One whose viewer was killed was never shown, and one that was detached from is to be seen later:
those are removed when they have been over for a day.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from torchtop.session.paths import SessionError, SessionPaths, is_running, read_json
from torchtop.session.presence import is_watched

_PREFIX = "torchtop-"

_FORGOTTEN_S = 86400.0
"""Own choice: somebody who has left a run over night finds it."""


def make_root() -> Path:
    """A temporary directory for one session, which only its owner can enter.

    Raises:
        SessionError: there is no place for it.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=_PREFIX))
    except OSError as error:
        raise SessionError(
            f"cannot make a temporary directory: {error.strerror}; set TMPDIR to one you can write"
        ) from None


def is_ephemeral(paths: SessionPaths) -> bool:
    """Whether a session was made in a directory of `make_root`, by this user.

    What the session says of itself is not enough: it may be of somebody else's making.
    """
    root = paths.root.parent
    try:
        own = root.lstat().st_uid == os.getuid()
    except OSError:
        return False
    meta = read_json(paths.meta) or {}
    in_place = root.name.startswith(_PREFIX) and root.parent == Path(tempfile.gettempdir())
    return own and in_place and meta.get("ephemeral") is True


def reference(paths: SessionPaths) -> str:
    """What to give to ``torchtop attach``: the id, or the path where no list knows the id."""
    return str(paths.root) if is_ephemeral(paths) else paths.id


def discard(paths: SessionPaths) -> bool:
    """Remove an ephemeral session that has ended; whether it was one, and is gone."""
    if not is_ephemeral(paths) or is_running(paths):
        return False
    with contextlib.suppress(OSError):
        shutil.rmtree(paths.root.parent)
    return not paths.root.exists()


def discard_forgotten() -> list[Path]:
    """Remove the ephemeral sessions that have been over for a day; what was removed."""
    removed = []
    try:
        found = [*Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/*/session.json")]
    except OSError:
        return []
    for meta in found:
        paths = SessionPaths(meta.parent)
        with contextlib.suppress(OSError):
            old = time.time() - _last_written_s(paths) > _FORGOTTEN_S
            if old and not is_watched(paths) and discard(paths):
                removed.append(paths.root)
    return removed


def _last_written_s(paths: SessionPaths) -> float:
    """When the supervisor or a viewer last wrote into a session, in Unix time."""
    files = (paths.meta, paths.summary, *(node.events for node in paths.nodes()))
    return max(file.stat().st_mtime for file in files if file.exists())
