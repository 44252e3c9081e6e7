"""Runs the real command line in a process of its own, with a state directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has nothing but torchtop."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHTOP")}
    path = os.pathsep.join([str(ROOT / "tui"), str(ROOT / "workloads")])
    config = str(home / "config")
    return {
        **kept,
        "PYTHONPATH": path,
        "TORCHTOP_HOME": str(home),
        "XDG_CONFIG_HOME": config,
        **more,
    }


def torchtop(
    *words: str, home: Path, cwd: Path, timeout_s: float = 240.0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``torchtop WORDS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "torchtop", *words],
        cwd=cwd,
        env=environment(home, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def processes_of(session: str) -> list[str]:
    """Processes that carry a session's id in their environment or their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if session.encode() in words and state != "Z":
            found.append(f"{entry.name}: {(entry / 'cmdline').read_text().replace(chr(0), ' ')}")
    return found
