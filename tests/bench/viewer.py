"""What the viewer costs: bytes to the terminal, CPU, and the time to its first frame.

Runs the real program in a pseudo-terminal of 120x40 on a replayed session of 8 GPUs and prints one
line of JSON. The first frame is compared with a bare Textual app's, the two started in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

COLUMNS, LINES = 120, 40
WARM_UP_S, WINDOW_S = 5.0, 20.0
FRAME_LIMIT_S = 30.0
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tui"), str(ROOT / "tests")]

from app.made_session import CASES, make  # noqa: E402
from app.pty_child import Child  # noqa: E402

BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("READY")
Bare().run(mouse=False)
"""
VIEWER = """
import sys
from pathlib import Path
from app.fake_controller import FakeController
from torchtop.app import run_viewer
root = Path(sys.argv[1])
run_viewer(FakeController(root.parent), root, replay=sys.argv[2] == "replay")
"""


def first_frame_s(code: str, text: bytes, *arguments: str) -> float:
    """Seconds from the start of a program until it has written a text."""
    child = Child(code, *arguments, size=(COLUMNS, LINES))
    try:
        if not child.read(FRAME_LIMIT_S, until=text):
            raise SystemExit(f"no frame: {child.seen[-2000:].decode('utf-8', 'replace')}")
        return time.monotonic() - child.started
    finally:
        child.close()


def steady(session: Path, window_s: float) -> tuple[float, float]:
    """Bytes a second and percent of a core while a session is replayed."""
    child = Child(VIEWER, str(session), "replay", size=(COLUMNS, LINES))
    try:
        child.read(WARM_UP_S)
        bytes_before, cpu_before, began = child.bytes, child.cpu_s(), time.monotonic()
        child.read(window_s)
        took = time.monotonic() - began
        used = child.cpu_s() - cpu_before
        return (child.bytes - bytes_before) / took, used / took * 100
    finally:
        child.close()


def measure(rounds: int, window_s: float) -> dict[str, float]:
    """All figures, on a session made for it."""
    with tempfile.TemporaryDirectory() as folder:
        session = make(Path(folder) / "sessions" / "eight", CASES["eight"], seconds=90)
        first_frame_s(BARE, b"READY")  # files into the page cache
        pairs = [
            (
                first_frame_s(BARE, b"READY"),
                first_frame_s(VIEWER, b" torchtop ", str(session), "live"),
                first_frame_s(VIEWER, b"samples/s", str(session), "live"),
            )
            for _ in range(rounds)
        ]
        rate, cpu = steady(session, window_s)
    return {
        "bytes_per_s": round(rate),
        "cpu_percent": round(cpu, 2),
        "first_frame_ratio": round(statistics.median(ours / bare for bare, ours, _ in pairs), 2),
        "first_data_ratio": round(statistics.median(data / bare for bare, _, data in pairs), 2),
        "bare_frame_s": round(statistics.median(bare for bare, _, _ in pairs), 3),
        "columns": COLUMNS,
        "lines": LINES,
        "gpus": 8,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of starts (5)")
    parser.add_argument("--seconds", type=float, default=WINDOW_S, help="length of the window (20)")
    options = parser.parse_args(arguments)
    print(json.dumps(measure(options.rounds, options.seconds)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
