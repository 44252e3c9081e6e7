"""The faults that tests provoke, row by row, and the processes that a run of tests has left."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchtop.launch import processes
from torchtop.session.tail import Tail

TAG = "TTOP_TEST_RUN"
"""Environment variable by which everything is known that a run of tests has started."""

_GRACE_S = float(os.environ.get("FAULTS_GRACE_S", "10"))
_WIDTHS = (3, 36, 44, 16, 7)
_TITLES = ("row", "fault", "right behaviour", "result", "seconds")


@dataclass
class Row:
    """One fault and how its tests went."""

    number: int
    fault: str
    behaviour: str
    seconds: float = 0.0
    outcomes: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def result(self) -> str:
        """One word, and how many tests stand behind it where that is not one."""
        counted = self.outcomes.count("passed")
        if "failed" in self.outcomes:
            return "FAIL"
        if not counted:
            return f"skip ({self.reason})" if self.reason else "skip"
        skipped = self.outcomes.count("skipped")
        return (
            "pass"
            + (f" ({counted})" if counted > 1 else "")
            + (f", {skipped} skip" if skipped else "")
        )


class Table:
    """Takes in what becomes of the tests of each fault."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str], Row] = {}

    def took(self, number: int, fault: str, behaviour: str, seconds: float) -> Row:
        """Add the time of a phase of a test to its row, which is returned."""
        row = self.rows.setdefault((number, fault), Row(number, fault, behaviour))
        row.seconds += seconds
        return row

    def lines(self) -> Iterator[str]:
        """The table as text, in order of number."""
        yield _line(_TITLES)
        for _, row in sorted(self.rows.items()):
            texts = (str(row.number), row.fault, row.behaviour, row.result, f"{row.seconds:.1f}")
            cells = [textwrap.wrap(text, width) for text, width in zip(texts, _WIDTHS, strict=True)]
            for part in range(max(map(len, cells))):
                yield _line([cell[part] if part < len(cell) else "" for cell in cells])


def _line(cells: tuple[str, ...] | list[str]) -> str:
    padded = [f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)]
    return "  ".join(padded).rstrip()


def left_running(tag: str, folder: Path | None) -> list[str]:
    """What a run of tests has left, after it had a moment to end.

    Args:
        tag: the value of `TAG` in the environment of all that the tests have started.
        folder: where the tests' sessions lie, whose records name every process by pid and start.
    """
    until = time.monotonic() + _GRACE_S
    while (left := _running(tag, folder)) and time.monotonic() < until:
        time.sleep(0.1)
    return left


def holding_gpus(folder: Path | None) -> list[str] | None:
    """The processes of sessions that a GPU's process list still shows; None where there is none."""
    asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    ours = {pid for pid, _ in _recorded(folder)}
    return [pid for pid in done.stdout.split() if pid.isdigit() and int(pid) in ours]


def _running(tag: str, folder: Path | None) -> list[str]:
    mark = f"{TAG}={tag}\0".encode()
    pids = set(_told(folder))
    for process in processes.all_processes():
        if process.state not in "ZX" and _has(process.pid, mark):
            pids.add(process.pid)
    pids.discard(os.getpid())  # tests write records of their own
    return sorted(f"{pid} {_command(pid)}" for pid in pids)


def _told(folder: Path | None) -> Iterator[int]:
    for pid, ticks in _recorded(folder):
        if processes.is_running(pid, ticks):
            yield pid


def _recorded(folder: Path | None) -> Iterator[tuple[int, int]]:
    for file in folder.rglob("events.jsonl") if folder else ():
        for record in Tail(file).poll():
            pid = record.get("pid" if record["kind"] == "header" else "process_pid")
            ticks = record.get("pid_start_ticks")
            if isinstance(pid, int) and isinstance(ticks, int):
                yield pid, ticks


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except (OSError, UnicodeDecodeError):
        return "?"
