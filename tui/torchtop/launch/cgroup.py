"""A control group for a run, where one can be had: nothing gets out of it, and one write ends it.

Only version 2 of cgroups has ``cgroup.kill`` (Linux 5.14), and only who may make a folder in the
own group has one: root, a container with its own cgroup namespace, or whoever was started with
``systemd-run --user --scope -p Delegate=yes``. Everyone else gets what the subreaper can do, which
is all but what outlives the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "torchtop-"
_FORGOTTEN_S = 300.0
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Hierarchy:
    """Where this process stands in one tree of cgroups.

    Attributes:
        mount: the folder that the tree is mounted at.
        folder: that of this process's own group.
        controllers: of version 1; None in version 2.
    """

    mount: Path
    folder: Path
    controllers: frozenset[str] | None


def hierarchies(root: Path = Path("/")) -> Iterator[Hierarchy]:
    """The trees of cgroups that this process is in and can see, version 2 first.

    Args:
        root: where the file system begins, for tests.
    """
    found = []
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup")]
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for group in groups:
            if len(group) == 3 and _is_mounted(group, kind[0], kind[2]):
                mount = root / _unescaped(fields[4]).lstrip("/")
                below = os.path.relpath(group[2], _unescaped(fields[3]))
                controllers = None if group[0] == "0" else frozenset(group[1].split(","))
                if not below.startswith(".."):
                    found.append(Hierarchy(mount, mount / below, controllers))
    yield from sorted(found, key=lambda hierarchy: hierarchy.controllers is not None)


def _is_mounted(group: list[str], kind: str, options: str) -> bool:
    """Whether a line of /proc/self/cgroup is about a mounted tree of this kind."""
    if group[0] == "0":
        return kind == "cgroup2"
    return kind == "cgroup" and set(group[1].split(",")) <= set(options.split(","))


class Cgroup:
    """A group of a session's own, of which torchrun and all that comes from it are members.

    Args:
        folder: the group's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, name: str, root: Path = Path("/")) -> Cgroup | None:
        """Make a group below this process's own; None where that cannot be.

        Args:
            name: of the session.
            root: where the file system begins, for tests.
        """
        own = next((h.folder for h in hierarchies(root) if h.controllers is None), None)
        if own is None:
            return None
        group = cls(own / (_PREFIX + name))
        try:
            _remove_forgotten(own)
            group.folder.mkdir()
        except OSError:
            return None
        if (group.folder / "cgroup.kill").exists():
            return group
        group.remove()
        return None

    def entrance(self) -> int | None:
        """A descriptor: a process that writes ``0`` to it becomes a member. None on failure."""
        try:
            return os.open(self.folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return None

    def pids(self) -> list[int]:
        """The members, those of groups below included; zombies are none."""
        found: set[int] = set()
        for file in [self.folder / "cgroup.procs", *self.folder.rglob("*/cgroup.procs")]:
            found.update(int(line) for line in _lines(file) if line.isdigit() and line != "0")
        return sorted(found)

    def kill(self) -> bool:
        """Send SIGKILL to all members at once; whether that could be asked for."""
        try:
            (self.folder / "cgroup.kill").write_text("1", encoding="ascii")
        except OSError:
            return False
        return True

    def remove(self) -> bool:
        """Remove the group and those below; False while it has members."""
        with contextlib.suppress(OSError):
            for folder in sorted(self.folder.rglob("*/"), reverse=True):
                folder.rmdir()
            self.folder.rmdir()
        return not self.folder.exists()


def _remove_forgotten(own: Path) -> None:
    """Remove empty groups whose supervisor was killed; one that was just made is not yet in use."""
    for folder in own.glob(_PREFIX + "*"):
        if time.time() - folder.stat().st_mtime > _FORGOTTEN_S:
            Cgroup(folder).remove()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
