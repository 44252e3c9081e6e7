"""A session of many hours, made in seconds: the records of a short one, repeated in time.

``python tests/bench/long_session.py PATH [HOURS]`` leaves one for looking at.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("tui", "tests")]

from app.made_session import CASES, MadeSession  # noqa: E402
from torchtop.session.records import PHASE_COLUMNS, Record, encode, latency_bucket  # noqa: E402

S = 1_000_000_000
_TIMES = re.compile(rb'("seq":|"mono_ns":|"marker_ns":)\d+')
_BLOCK = 512


def long_session(root: Path, hours: float, ranks: int = 8) -> tuple[int, int]:
    """Write a session of `ranks` ranks that ran for `hours`, as large as a real one.

    Returns:
        When it began and when it ended, in monotonic nanoseconds.
    """
    made = MadeSession(root, replace(CASES["eight"], gpus=ranks, ranks=ranks))
    for _ in range(10):
        made.tick()
    made.close()
    begin, end = made.begin_ns + 10 * S, made.begin_ns + round(hours * 3600) * S
    for file in root.rglob("*.jsonl"):
        if file.name == "history.jsonl":
            _append(file, [_minute(begin)], begin, end, 60 * S)
        elif file.name == "analysis.jsonl":
            _append(file, [_last(file, "analysis")], begin, end, S)
        elif file.name == "devices.jsonl":
            _append(file, [_last(file, "tick"), _last(file, "processes")], begin, end, S)
        elif file.parent.name == "ranks" and not file.name.endswith(".process.jsonl"):
            _append(file, [_last(file, "beat"), _steps(), _totals()], begin, end, S // 2)
    return made.begin_ns, end


def _append(file: Path, records: list[Record], begin: int, end: int, every_ns: int) -> None:
    """The same records again and again, each time with their time and their number."""
    templates = [_TIMES.sub(rb"\1%d", encode(r).replace(b"%", b"%%")) for r in records]
    lines = _lines(templates, begin, end, every_ns)
    with file.open("ab") as out:
        while block := b"".join(line for line, _ in zip(lines, range(_BLOCK), strict=False)):
            out.write(block)


def _lines(templates: list[bytes], begin: int, end: int, every_ns: int) -> Iterator[bytes]:
    for number, now in enumerate(range(begin, end, every_ns), 100):
        for template in templates:
            times = (number, now, now)[: template.count(b"%d")]
            yield template % times


def _last(file: Path, kind: str) -> Record:
    """The last record of a kind."""
    records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    found: Record = [record for record in records if record["kind"] == kind][-1]
    return found


def _minute(now: int) -> Record:
    """As many numbers as a minute of eight ranks has."""
    phases = dict.fromkeys(PHASE_COLUMNS, 7_123_456)
    verdict = {"kind": "DATA", "severity": "warn", "seconds": 60.0, "headline": "x" * 60}
    return {
        "kind": "minute", "seq": 1, "mono_ns": now, "from_ns": now - 60 * S, "to_ns": now,
        "samples": 300_000, "steps": 1200, "phases_us": phases,
        "latency": {str(latency_bucket(50_000 + i * 900)): i for i in range(80)},
        "ranks": [{"rank": r, "recorded": 1200, "phases_us": phases} for r in range(8)],
        "gpus": [{"index": i, "samples": 60, "util_percent": 4000, "power_w": 9} for i in range(8)],
        "verdicts": [{**verdict, "evidence": ["y" * 80] * 3, "advice": ["z" * 60] * 2}],
        "findings": [], "scalars": {"loss": {"first": 1.0, "last": 0.5, "min": 0.4}},
    }  # fmt: skip


def _steps() -> Record:
    """Ten recorded steps: 20 a second at most."""
    return {"kind": "steps", "seq": 1, "mono_ns": 1, **{c: [5_123] * 10 for c in PHASE_COLUMNS}}


def _totals() -> Record:
    return {"kind": "totals", "seq": 1, "mono_ns": 1, **dict.fromkeys(PHASE_COLUMNS, 51_234)}


if __name__ == "__main__":
    print(long_session(Path(sys.argv[1]), float((sys.argv[2:] or ["24"])[0])))
