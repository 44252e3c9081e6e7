"""Errors that end a command with one line and an exit status."""

from __future__ import annotations

import stat
from pathlib import Path

from torchtop.session.paths import home


class UsageError(Exception):
    """Something that the user can put right; the message is one line that says what to do.

    Args:
        message: the line.
        status: the exit status: 2 for bad usage, 1 where the script itself is at fault.
        whole: never to be abridged, as what the user has to judge.
    """

    def __init__(self, message: str, status: int = 2, whole: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.whole = whole


def unusable_home() -> str | None:
    """Why the state directory cannot be one, in a line; None where it is one, or can be made."""
    try:
        is_directory = stat.S_ISDIR(home().stat().st_mode)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror
    else:
        why = None if is_directory else "it is not a directory"
    told = f"{home()} cannot be the state directory: {why}; set TORCHTOP_HOME to one you can write"
    return told if why else None


def here() -> Path:
    """The current directory.

    Raises:
        UsageError: it has been deleted, or cannot be entered any more.
    """
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current directory is gone: change to one that exists") from None
