"""What `doctor` looks at besides torch and the GPUs: limits, places and the terminal."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from torchtop.launch.cgroup import Cgroup, hierarchies
from torchtop.launch.findings import Finding
from torchtop.session import paths
from torchtop.session.there import exists

_GIB = 1 << 30

_SHM_BYTES = _GIB
"""Loader workers hand batches over in /dev/shm. Docker's default of 64 MiB (docker run --shm-size)
is below one batch of 256 images of 3 x 224 x 224 floats (154 MB); each worker prefetches two."""

_OPEN_FILES = 1024
"""The kernel's own soft limit (INR_OPEN_CUR in linux/fs.h). torch keeps a descriptor for each
tensor that a loader worker hands over (torch.multiprocessing, "file_descriptor")."""

_STATE_FREE_BYTES = _GIB
"""Own choice: ten days of one rank at the 100 MB a day that records take at most."""

_MEMORY_FREE_BYTES = _GIB
"""Own choice: hardly one process that has imported torch."""


def _shm() -> Iterator[Finding]:
    try:
        space = os.statvfs("/dev/shm")
    except OSError as error:
        advice = "loader workers need it: mount a tmpfs there, or use workers=0"
        yield Finding("/dev/shm", "warn", f"not there ({error.strerror})", advice)
        return
    total, free = space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail
    value = f"{_size(free)} free of {_size(total)}"
    if free < _SHM_BYTES:
        advice = "workers may die of it: clear it, or docker run --shm-size=8g (or --ipc=host)"
        yield Finding("/dev/shm", "warn", value, advice)
    else:
        yield Finding("/dev/shm", "ok", value)


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{_limit(soft)}, at most {_limit(hard)}"
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES:
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, 65536)
        advice = f"loader workers hold one for each tensor in flight: ulimit -n {wanted}"
        yield Finding("open files", "warn", value, advice)
    else:
        yield Finding("open files", "ok", value)


def _state_directory() -> Iterator[Finding]:
    home = paths.home()
    place = next(folder for folder in (home, *home.parents) if exists(folder))
    free = shutil.disk_usage(place).free
    value = f"{home}, {_size(free)} free"
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = f"{place} cannot be written: set TORCHTOP_HOME to a directory that you can write"
        yield Finding("state", "fail", value, advice)
    elif place == home and stat.S_IMODE(home.stat().st_mode) & 0o077:
        yield Finding("state", "warn", value, f"others can look into it: chmod 700 {home}")
    elif free < _STATE_FREE_BYTES:
        advice = "remove old sessions from it, or set TORCHTOP_HOME to a larger disk"
        yield Finding("state", "warn", value, advice)
    else:
        yield Finding("state", "ok", value)


def _terminal() -> Iterator[Finding]:
    term, color = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    if os.environ.get("NO_COLOR"):
        yield Finding("colours", "info", "off: NO_COLOR is set")
    elif color.lower() in ("truecolor", "24bit"):
        yield Finding("colours", "ok", f"24 bit (TERM={term}, COLORTERM={color})")
    elif "256color" in term or "direct" in term:
        yield Finding("colours", "ok", f"256 (TERM={term})")
    elif term in ("", "dumb"):
        advice = "the screen needs one: export TERM=xterm-256color; --no-tui does without"
        yield Finding("colours", "warn", f"none (TERM={term})", advice)
    else:
        advice = "if the terminal has more: export TERM=xterm-256color"
        inside = "TMUX" in os.environ or term.startswith("screen")
        if inside:
            advice = "in ~/.tmux.conf: set -g default-terminal tmux-256color"
        yield Finding("colours", "warn", f"16 or fewer (TERM={term})", advice)
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    if encoding.lower().replace("-", "") == "utf8":
        yield Finding("encoding", "ok", encoding)
    else:
        advice = "charts and symbols need UTF-8: export LC_ALL=C.UTF-8"
        yield Finding("encoding", "warn", encoding, advice)


def _tmux() -> Iterator[Finding]:
    program = shutil.which("tmux")
    if program is None:
        advice = "not needed: training outlives the terminal, and torchtop attach shows it again"
        yield Finding("tmux", "info", "not installed", advice)
        return
    try:
        run = subprocess.run(
            [program, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=2, check=False
        )
        version = run.stdout.decode("utf-8", "replace").strip() or "version N/A"
    except (OSError, subprocess.TimeoutExpired):
        version = "version N/A"
    yield Finding("tmux", "ok", version + (", inside it" if "TMUX" in os.environ else ""))


def _logind() -> Iterator[Finding]:
    """Whether logging out ends the training: logind can kill all processes of a user."""
    if not Path("/run/systemd/system").is_dir():
        yield Finding("logout", "ok", "no systemd-logind here: training outlives it")
        return
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    setting = logind_setting("KillUserProcesses", Path("/"))
    if setting not in ("yes", "true", "1", "on"):
        shown = setting or "not set (off in most distributions)"
        yield Finding("logout", "ok", f"KillUserProcesses: {shown}")
    elif os.getuid() == 0:
        yield Finding("logout", "ok", "KillUserProcesses spares root (KillExcludeUsers)")
    elif Path("/var/lib/systemd/linger", user).exists():
        yield Finding("logout", "ok", "KillUserProcesses is on, and lingering is enabled")
    else:
        advice = (
            "logging out would end training: loginctl enable-linger, "
            "then systemd-run --user --scope torchtop run ..."
        )
        yield Finding("logout", "warn", "KillUserProcesses is on", advice)


def logind_setting(name: str, root: Path) -> str | None:
    """A setting of logind.conf in lower case, the last of its files deciding; None if not set.

    Args:
        name: such as ``KillUserProcesses``.
        root: ``/``, or where a system's files lie.
    """
    folders = [root / base / "systemd" for base in ("usr/lib", "run", "etc")]
    files = {f.name: f for folder in folders for f in folder.glob("logind.conf.d/*.conf")}
    value = None
    for file in (root / "etc/systemd/logind.conf", *(files[key] for key in sorted(files))):
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            key, equals, text = line.partition("=")
            if equals and key.strip() == name:
                value = text.strip().lower()
    return value


def _cgroup() -> Iterator[Finding]:
    if own_cgroup() is None:
        yield Finding("cgroup", "info", "no cgroup v2")
    elif (group := Cgroup.make(f"doctor-{os.getpid()}")) is not None:
        group.remove()
        yield Finding(
            "cgroup", "ok", "v2: a run gets a group of its own, and none of it can be left"
        )
    else:
        advice = (
            "a daemon of a killed session may outlive it; against that: "
            "systemd-run --user --scope -p Delegate=yes torchtop ..."
        )
        yield Finding("cgroup", "info", "v2, but a run cannot have a group of its own", advice)


def own_cgroup() -> Path | None:
    """The folder of this process's cgroup v2, or None."""
    return next((h.folder for h in hierarchies() if h.controllers is None), None)


def _cpus() -> Iterator[Finding]:
    usable, there = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    quota = _cgroup_cpus()
    if quota is not None and quota < usable:
        value = f"{quota:.1f} of {there} cores, a limit of the cgroup"
        yield Finding("CPUs", "info", value, "loader workers and ranks share them")
    elif usable < there:
        value = f"{usable} of {there} cores, by affinity"
        yield Finding("CPUs", "info", value, "loader workers and ranks share them")
    else:
        yield Finding("CPUs", "ok", f"{there} cores")


def _cgroup_cpus() -> float | None:
    """Cores that ``cpu.max`` allows; None for no limit."""
    words = (_cgroup_file("cpu.max") or "").split()
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def _memory() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    value = f"{_size(memory.available)} available of {_size(memory.total)}"
    limit = _cgroup_file("memory.max") or ""
    if limit.isdigit() and int(limit) < memory.total:
        value += f", {_size(int(limit))} allowed by the cgroup"
    if memory.available < _MEMORY_FREE_BYTES:
        advice = "the kernel may kill a rank: end what is not needed, or use fewer workers"
        yield Finding("memory", "warn", value, advice)
    else:
        yield Finding("memory", "ok", value)


def _cgroup_file(name: str) -> str | None:
    group = own_cgroup()
    try:
        return (group / name).read_text(encoding="ascii").strip() if group else None
    except (OSError, ValueError):
        return None


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _size(count: int) -> str:
    """Bytes for people: ``64 MiB``, ``1.5 GiB``."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"


CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "CPUs": _cpus,
    "memory": _memory,
    "/dev/shm": _shm,
    "open files": _open_files,
    "state": _state_directory,
    "terminal": _terminal,
    "tmux": _tmux,
    "logout": _logind,
    "cgroup": _cgroup,
}
"""Every look at the host, in the order of the report."""
