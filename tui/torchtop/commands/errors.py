"""Errors that end a command with one line and an exit status."""

from __future__ import annotations

from pathlib import Path


class UsageError(Exception):
    """Something that the user can put right; the message is one line that says what to do.

    Args:
        message: the line.
        status: the exit status: 2 for bad usage, 1 where the script itself is at fault.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def here() -> Path:
    """The current directory.

    Raises:
        UsageError: it has been deleted, or cannot be entered any more.
    """
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the current directory is gone: change to one that exists") from None
