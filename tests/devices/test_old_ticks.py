"""The sampler's file of a long run: fewer ticks where they are old, for whoever reads them."""

from __future__ import annotations

import time as real_time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.made import session, write
from session.punched import holes
from torchtop.devices import sampler
from torchtop.devices.model import METRICS
from torchtop.devices.sampler import Options, Sampler
from torchtop.export.source import Source
from torchtop.htmlreport.gather import gather
from torchtop.launch.analyst import _Clock, _timed
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.replay import Replay
from torchtop.session.tail import Tail
from torchtop.session.thinning import Thinning

__all__ = ["holes"]

S = 1_000_000_000
LONG_S, WHOLE_S, SPARSE_S = 2400, 600, 20
HOT = range(703, 706)
"""Seconds at which GPU 1 is too warm."""
LOST_S = 1205
"""From when on nothing is known of GPU 0."""


class Clock:
    """Time that passes where the sampler waits, and there a little unevenly."""

    def __init__(self) -> None:
        self.start_s = real_time.monotonic()
        self.now_s = self.start_s
        self.waits = 0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)

    def wait(self, until_s: float) -> bool:
        self.waits += 1
        self.now_s = until_s + (0.003 if self.waits % 3 else 0.0001)
        return False

    @property
    def second(self) -> int:
        return int(self.now_s - self.start_s)


class Gpus:
    """Two GPUs; one is too warm for a while, and reaches its power limit every other second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        fact = [SimpleNamespace(header=lambda at=at: {"index": at, "uuid": f"GPU-{at}"})
                for at in (0, 1)]  # fmt: skip
        self.inventory = SimpleNamespace(driver="1", error=None, gpus=fact)

    def sample(self, now_s: float, *, energy: bool, limit_s: float) -> dict[str, list[Any]]:
        second = self.clock.second
        told: dict[str, list[Any]] = {metric: [50.0 + second % 7] * 2 for metric in METRICS}
        told["energy_j"] = [1000.0 + second] * 2 if energy else [None] * 2
        reasons = ["sw_power_cap"] if second % 2 else []
        told["throttle"] = [[], [*reasons, *(["hw_thermal"] if second in HOT else [])]]
        if second >= LOST_S:
            told = {metric: [None, values[1]] for metric, values in told.items()}
        return told

    def processes(self, now_s: float) -> list[Any]:
        return [[{"process_pid": 1, "used_bytes": 5, "name": "x" * 400}], []]

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SessionPaths, int, Tail]]:
    """A sampler that has run for long; when it began, and a reader that was there all the time."""
    paths = session(tmp_path_factory.mktemp("long") / "s", wall_s=real_time.time(), host="host-a")
    node, clock = paths.node("host-a"), Clock()
    reader = Tail(node.devices)

    def wait(until_s: float) -> bool:
        if clock.waits % 300 == 0:
            reader.poll()
        return clock.wait(until_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "time", clock)
        patch.setattr(sampler, "HostSampler", lambda: SimpleNamespace(sample=_host))
        options = Options(node.devices, 1.0, None, None, True, LONG_S)
        thinning = Thinning(node.devices, WHOLE_S * S, sampler._SPARSE_NS)
        made = Sampler(options, Gpus(clock), thinning)  # type: ignore[arg-type]
        patch.setattr(made, "_wait", wait)
        made.run()
        made.close()
    yield paths, round(clock.start_s * 1e9), reader


def _host() -> dict[str, Any]:
    return {"cpu_percent": 12.5, "cpu_percent_per_core": [12.5] * 64}


def test_old_ticks_are_fewer_and_nothing_new_is_lost(long: tuple[SessionPaths, int, Tail]) -> None:
    paths, begin, reader = long
    file = paths.node("host-a").devices
    tail = Tail(file)
    records = tail.poll()
    ticks = [record for record in records if record["kind"] == "tick"]
    kept = [(record["mono_ns"] - begin) // S for record in ticks]
    # then the young ones are all there, the old ones in order and close enough for a report
    assert kept[-WHOLE_S:] == [*range(LONG_S - WHOLE_S, LONG_S)]
    assert max(after - before for before, after in pairwise(kept)) <= SPARSE_S + 10
    # with the first, and each moment at which a GPU was throttled as it had not been, or lost
    assert {0, HOT.start, HOT.stop, LOST_S} <= {*kept}
    # and not each at which what comes and goes all the time did
    assert len(kept) < WHOLE_S + 2 * (LONG_S - WHOLE_S) / SPARSE_S
    # and those that are kept tell of the energy and of the processes, too
    old = [tick for tick in ticks if tick["mono_ns"] < begin + (LONG_S - WHOLE_S) * S]
    assert sum(tick["gpus"]["energy_j"][1] is not None for tick in old) > 0.8 * len(old)
    listed = {record["mono_ns"] // S for record in records if record["kind"] == "processes"}
    assert sum(tick["mono_ns"] // S in listed for tick in old) > 0.8 * len(old)
    # and what is left takes little of the disk, while no reader's place has moved
    status = file.stat()
    young = status.st_size * WHOLE_S / LONG_S
    assert status.st_blocks * 512 < young + 0.5 * (status.st_size - young)
    assert tail.bad == reader.bad == 0
    assert reader.poll()[-1] == records[-1]


def test_the_gpus_can_be_replayed(long: tuple[SessionPaths, int, Tail]) -> None:
    paths, begin, _ = long
    replay = Replay(paths.root)
    for second in (0, 5, 777, HOT.start, 1500, LONG_S - 1, 300):
        shown = replay.at(begin + second * S + S // 2)
        assert len(shown.gpus) == 2 and shown.bad_lines == 0
        assert shown.gpus[1].age_s <= SPARSE_S + 10
        assert shown.gpus[1].now["util_percent"] is not None
        assert ("hw_thermal" in shown.gpus[1].now["throttle"]) is (second in HOT)


def test_a_report_shows_the_gpus_over_the_whole_run(long: tuple[SessionPaths, int, Tail]) -> None:
    paths, begin, _ = long
    end = {"kind": "beat", "mono_ns": begin + LONG_S * S}
    write(paths.ranks / "0-0-1.jsonl", "rank", end, rank=0, attempt=0)
    drawn = gather(Source(load_paths(paths))).gpus["GPU 1"]["util_percent"]
    # then points lie no farther apart than those that are kept
    shown = [at for at, mean in zip(drawn.times, drawn.means(), strict=True) if mean > 0]
    assert max(after - before for before, after in pairwise(shown)) <= 40
    assert (shown[0], shown[-1]) == (pytest.approx(5, abs=5), pytest.approx(LONG_S, abs=10))


def test_when_it_is_analysed_again_no_moment_is_without_its_gpus(
    long: tuple[SessionPaths, int, Tail],
) -> None:
    paths, begin, _ = long
    file = paths.node("host-a").devices
    records = [r for part in _timed(paths, file, _Clock.of(paths, [file])) for r in part]
    # Given its file, there is a tick each second, and processes every five
    for kind, every_s in (("tick", 1), ("processes", 5)):
        times = [at_ns for at_ns, _, record in records if record["kind"] == kind]
        assert len(times) == pytest.approx(LONG_S / every_s, rel=0.1)
        assert max(after - before for before, after in pairwise(times)) < (every_s + 4.5) * S
    # and it tells of the state of the moment
    warm = [
        (at_ns - begin) // S
        for at_ns, _, record in records
        if record["kind"] == "tick" and "hw_thermal" in record["gpus"]["throttle"][1]
    ]
    assert warm == [*HOT]


def test_what_follows_a_gap_in_a_file_that_was_cut_is_analysed_again(tmp_path: Path) -> None:
    # Given a file that has lost more of its middle than is read at a time
    paths = session(tmp_path / "s")
    file = paths.node("host-a").devices
    write(file, "sampler", {"kind": "tick", "mono_ns": 1, "gpus": {}})
    with file.open("ab") as out:
        out.truncate(out.tell() + (3 << 20))
        out.seek(0, 2)
        out.write(b'\n{"kind":"tick","seq":9,"mono_ns":2,"gpus":{}}\n')

    parts = [*_timed(paths, file, _Clock.of(paths, [file]))]

    assert [record["seq"] for part in parts for _, _, record in part] == [0, 1, 9]
