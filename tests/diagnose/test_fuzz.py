"""Recorded sessions with their records dropped, doubled, reordered and spoiled at random.

Every change is drawn from a seed, so that what fails once fails again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from torchtop.diagnose.analyser import Analyser
from torchtop.session.records import VERDICTS, encode
from torchtop.session.tail import Tail

SESSIONS = Path(__file__).parents[1] / "fixtures" / "sessions"
RIGHT = {
    "resnet50-cifar10": "LAUNCH",
    "compute-heavy": "COMPUTE-BOUND",
    "slow-loader": "DATA",
    "comm-heavy": "COMM",
    "straggler": "STRAGGLER",
}
ODD = (
    *(None, -1, 0, 2**62, -(2**62), 10**400, 1e308, -0.5, float("nan"), float("inf"), True),
    *("", "many", "\x1b[2J", [], [None], [[]], {}, {"a": 1}, "9" * 400),
)
Record = dict[str, Any]
Stream = list[tuple[str, Record]]
Change = Callable[[Stream, random.Random], Stream]


@cache
def recorded(name: str) -> Stream:
    """The records of a session, in the order of their time."""
    files = [*SESSIONS.glob(f"{name}/ranks/*.jsonl"), *SESSIONS.glob(f"{name}/nodes/*/*.jsonl")]
    found = [
        (str(file.relative_to(SESSIONS / name)), record)
        for file in sorted(files)
        for record in Tail(file).poll(limit=1 << 30)
    ]
    return sorted(found, key=lambda item: item[1]["mono_ns"])


def dropped(stream: Stream, rnd: random.Random) -> Stream:
    return [item for item in stream if rnd.random() < 0.8]


def doubled(stream: Stream, rnd: random.Random) -> Stream:
    return [item for item in stream for _ in range(rnd.choice((1, 1, 2, 3)))]


def reordered(stream: Stream, rnd: random.Random) -> Stream:
    """Each record comes up to 30 places sooner or later."""
    order = sorted(range(len(stream)), key=lambda place: place + rnd.uniform(-30, 30))
    return [stream[place] for place in order]


def shuffled(stream: Stream, rnd: random.Random) -> Stream:
    return rnd.sample(stream, len(stream))


def cut(stream: Stream, rnd: random.Random) -> Stream:
    """One file ends early, another begins late."""
    first, last = rnd.sample(sorted({source for source, _ in stream}), 2)
    middle = len(stream) // 2
    return [
        (source, record)
        for place, (source, record) in enumerate(stream)
        if not (source == first and place > middle) and not (source == last and place < middle)
    ]


def jumping(stream: Stream, rnd: random.Random) -> Stream:
    """The clocks of some files jump by up to an hour, ahead or back, some times."""
    jumps = {source: 0 for source, _ in stream}
    made: Stream = []
    for source, record in stream:
        if rnd.random() < 0.01:
            jumps[source] = rnd.randrange(-3_600_000_000_000, 3_600_000_000_000)
        made.append((source, _moved(record, jumps[source])))
    return made


def _moved(record: Record, by_ns: int) -> Record:
    names = [name for name in record if name.endswith("_ns")]
    return record | {name: _later(record[name], by_ns) for name in names}


def _later(value: Any, by_ns: int) -> Any:
    if isinstance(value, list):
        return [_later(item, by_ns) for item in value]
    return value + by_ns if isinstance(value, int) else value


def spoiled(part: float) -> Change:
    """In a part of the records something is replaced by what does not belong there."""

    def change(stream: Stream, rnd: random.Random) -> Stream:
        return [
            (source, _spoil(record, rnd) if rnd.random() < part else record)
            for source, record in stream
        ]

    return change


def _spoil(value: Any, rnd: random.Random) -> Any:
    """Something odd in the place of a field, or of one within it, or of a few items of a list."""
    if isinstance(value, dict) and value and rnd.random() < 0.95:
        name = rnd.choice(sorted(value))
        if rnd.random() < 0.1:
            return {key: item for key, item in value.items() if key != name}
        return value | {name: _spoil(value[name], rnd)}
    if isinstance(value, list) and value and rnd.random() < 0.7:
        spoilt = list(value)
        for place in rnd.sample(range(len(value)), rnd.randint(1, len(value))):
            spoilt[place] = _spoil(value[place], rnd)
        return spoilt[: rnd.randint(0, 2 * len(value))]
    return rnd.choice(ODD)


def analyses(stream: Stream) -> Iterator[dict[str, Any]]:
    """What is made of the records, about every two seconds and at the end.

    Time is the recording's own, and what is fed may be of another.
    """
    analyser, every = Analyser(), max(1, len(stream) // 20)
    for place, (source, record) in enumerate(stream):
        analyser.feed(source, record)
        if place % every == 0 or place == len(stream) - 1:
            now = record.get("mono_ns") if isinstance(record, dict) else 0
            made = analyser.analyse(now if isinstance(now, int) and 0 <= now < 2**63 else 0)
            yield json.loads(encode({"kind": "analysis"} | made))
    minute = analyser.minute(10**15)
    assert minute is None or json.loads(encode({"kind": "minute"} | minute))


@pytest.mark.parametrize("name", RIGHT)
def test_a_recording_as_it_is_gets_its_verdict(name: str) -> None:
    assert {a["verdict"]["kind"] for a in analyses(recorded(name))} >= {RIGHT[name]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize(
    "change",
    [dropped, doubled, reordered, shuffled, cut, jumping, spoiled(0.01)],
    ids=["dropped", "doubled", "reordered", "shuffled", "cut", "jumping", "spoiled"],
)
def test_records_that_come_otherwise_are_judged_right_or_not_at_all(
    change: Change, name: str, seed: int
) -> None:
    changed = change(recorded(name), random.Random(f"{name} {seed}"))

    for analysis in analyses(changed):
        verdict = analysis["verdict"]
        right = verdict["kind"] in (RIGHT[name], "UNDECIDED", "HUNG")
        assert right or verdict["severity"] in ("ok", "note"), verdict


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RIGHT)
def test_records_that_are_full_of_nonsense_are_got_over(name: str, seed: int) -> None:
    changed = spoiled(0.6)(recorded(name), random.Random(f"{name} {seed}"))

    for analysis in analyses(changed):
        verdict = analysis["verdict"]
        assert verdict["kind"] in VERDICTS
        assert verdict["severity"] in ("ok", "note", "warn", "critical", "unknown")
        assert 0 < len(verdict["headline"]) <= 80
        assert verdict["share"] is None or 0 <= verdict["share"] <= 1
        assert verdict["gain_bound"] is None or 1 <= verdict["gain_bound"] <= 100
