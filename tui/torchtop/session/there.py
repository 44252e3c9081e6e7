"""What a path names, for paths that somebody has typed: too long a name is just not there.

`Path` raises ENAMETOOLONG, and EACCES of a folder on the way.
"""

from __future__ import annotations

from pathlib import Path


def exists(path: Path) -> bool:
    """Whether there is something of that name."""
    try:
        return path.exists()
    except OSError:
        return False


def is_dir(path: Path) -> bool:
    """Whether it is a directory."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether it is a regular file."""
    try:
        return path.is_file()
    except OSError:
        return False
