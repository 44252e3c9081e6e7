"""How long a day takes to open: 8 ranks, 24 hours, a second and a half at most.

Makes such a session (about 1.6 GB, for which the disk of TMPDIR must have room), reads it as the
viewer does, live and as a replay, and prints one line of JSON. ``--hours 2`` makes a smaller one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("tui", "tests")]

from bench.long_session import S, long_session  # noqa: E402
from bench.viewer import VIEWER, first_frame_s  # noqa: E402
from torchtop.session.follow import Follower  # noqa: E402
from torchtop.session.replay import Replay  # noqa: E402

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What some work gives, and the seconds that it took."""
    began = time.perf_counter()
    done = work()
    return done, round(time.perf_counter() - began, 3)


def measure(hours: float) -> dict[str, float]:
    """All figures, on a session made for it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "sessions" / "day"
        long_session(root, hours)
        size_bytes = sum(file.stat().st_size for file in root.rglob("*.jsonl"))
        _, attach_s = timed(lambda: Follower(root).poll())
        replay, open_s = timed(lambda: Replay(root))
        _, end_s = timed(lambda: replay.at(replay.end_ns))
        middle = (replay.start_ns + replay.end_ns) // 2
        _, jump_s = timed(lambda: replay.at(middle))
        _, second_s = timed(lambda: replay.at(middle + S))
        shown_s = first_frame_s(VIEWER, b"samples/s", str(root), "live")
    return {
        "attach_s": attach_s,
        "open_s": open_s,
        "open_at_end_s": round(open_s + end_s, 3),
        "jump_s": jump_s,
        "second_s": second_s,
        "viewer_shows_it_s": round(shown_s, 3),
        "size_gb": round(size_bytes / 1e9, 3),
        "hours": hours,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="length of the session (24)")
    print(json.dumps(measure(parser.parse_args(arguments).hours)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
