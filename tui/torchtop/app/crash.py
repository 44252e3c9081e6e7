"""The viewer's own death: one line for the user, and the story in a file."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from torchtop.app.text import clean
from torchtop.session.paths import SessionError, home, is_running, list_sessions, private_dir

FILE_NAME = "viewer-error.txt"
"""In the state directory; the last one alone is kept."""


def report(error: BaseException, what_ended: str = "the viewer") -> str:
    """Write down what happened and say it in one line: `what_ended` did so by its own mistake.

    Where the state directory cannot be written the story is left out, not shown.
    """
    story = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    what = clean(f"{type(error).__name__}: {error}", 200)
    written = _write(story)
    details = f"details in {written}" if written else "its details could not be written down"
    return f"{what_ended} ended by a mistake of its own ({what}); {details}" + (
        "; training goes on: torchtop attach shows it again" if _trains() else ""
    )


def _trains() -> bool:
    """Whether a session runs that could be watched again."""
    try:
        return any(is_running(paths) for paths in list_sessions())
    except Exception:  # its mistake may be the very one that is being told
        return False


def _write(story: str) -> Path | None:
    """Put the story in place of the last one, readable by the user alone."""
    try:
        folder = private_dir(home())
        fd, name = tempfile.mkstemp(dir=folder, prefix=".viewer-error-")
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(story)
        return Path(name).replace(folder / FILE_NAME)
    except (OSError, SessionError):
        return None
