"""Analyses of a long run: fewer where they are old, for whoever reads them as they always were."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from session.made import session
from session.punched import holes
from torchtop.export.source import Source
from torchtop.htmlreport.gather import gather
from torchtop.launch.analyst import Analyst, _told
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.records import Appender
from torchtop.session.replay import Replay
from torchtop.session.tail import Tail
from torchtop.session.thinning import Thinning, punch
from torchtop.session.timeline import TimedFile

__all__ = ["holes"]

S = 1_000_000_000
LONG_S, WHOLE_S, SPARSE_S = 3600, 600, 20
COMM = range(1003, 1007)
"""Seconds at which another verdict stands."""
THROTTLED = range(2005, 2006)


def analysis(second: int) -> dict[str, Any]:
    kind = "COMM" if second in COMM else "DATA"
    found = [{"kind": "THROTTLED", "severity": "warn", "rank": 0}] if second in THROTTLED else []
    return {
        "step": second,
        "steps": second + 1,
        "warming_up": False,
        "throughput": {"samples_per_s": 100.0},
        "verdict": {"kind": kind, "severity": "warn", "share": 0.2, "evidence": ["x" * 1500]},
        "findings": found,
    }


def write(paths: SessionPaths, seconds: int = LONG_S) -> tuple[int, Tail]:
    """An hour of analyses, ten minutes of them kept whole; when it began, and a live reader."""
    out = Appender(paths.analysis, "analyst")
    (header,) = Tail(paths.analysis).poll()
    begin: int = header["mono_ns"]
    thinning = Thinning(paths.analysis, WHOLE_S * S, SPARSE_S * S)
    reader = Tail(paths.analysis)
    for second in range(seconds):
        fields, start = analysis(second), out.written_bytes
        out.write("analysis", mono_ns=begin + second * S, **fields)
        thinning.wrote(start, out.written_bytes, begin + second * S, _told(fields))
        if second % 50 == 0:
            assert len(reader.poll()) == (2 if second == 0 else 50)
    out.close()
    return begin, reader


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[SessionPaths, int, Tail]:
    paths = session(tmp_path_factory.mktemp("long") / "s", wall_s=0.0)
    return (paths, *write(paths))


def test_old_analyses_are_fewer_and_nothing_new_is_lost(
    long: tuple[SessionPaths, int, Tail],
) -> None:
    paths, begin, reader = long
    tail = Tail(paths.analysis)
    kept = [(r["mono_ns"] - begin) // S for r in tail.poll() if r["kind"] == "analysis"]
    # then the young ones are all there, the old ones in order and close enough
    assert kept[-WHOLE_S:] == [*range(LONG_S - WHOLE_S, LONG_S)]
    assert max(after - before for before, after in pairwise(kept)) <= SPARSE_S
    assert kept == sorted(set(kept))
    # with each moment at which another verdict or finding came or went
    assert {0, COMM.start, COMM.stop, THROTTLED.start, THROTTLED.stop} <= {*kept}
    # and what is left takes little of the disk, while no reader's place has moved
    status = paths.analysis.stat()
    young = status.st_size * WHOLE_S / LONG_S
    assert status.st_blocks * 512 < young + 0.4 * (status.st_size - young)
    assert len(kept) < WHOLE_S + 2 * (LONG_S - WHOLE_S) / SPARSE_S
    # and nothing of that is a line that could not be read
    assert tail.bad == reader.bad == 0
    assert len(reader.poll()) == 49


def test_the_whole_run_can_be_replayed(long: tuple[SessionPaths, int, Tail]) -> None:
    paths, begin, _ = long
    replay = Replay(paths.root)
    for second in (0, 5, 777, COMM.start, 2500, LONG_S - 1, 300):
        shown = replay.at(begin + second * S)
        assert shown.analysis is not None and shown.bad_lines == 0
        assert 0 <= second - shown.analysis["step"] < SPARSE_S
        kind = "COMM" if second in COMM else "DATA"
        assert shown.analysis["verdict"]["kind"] == kind
        file = TimedFile(paths.analysis)
        file.start(begin + second * S)
        assert next(file.take(begin + LONG_S * S))["step"] - second < SPARSE_S


def test_a_report_is_of_the_whole_run(long: tuple[SessionPaths, int, Tail]) -> None:
    paths, _, _ = long
    source = Source(load_paths(paths))
    assert [record["step"] for record in source.analyses()][-1] == LONG_S - 1
    told = gather(source).verdicts
    # then each verdict stands until the next one, as it did
    assert [stretch.kind for stretch in told] == ["DATA", "COMM", "DATA"]
    assert sum(stretch.end_s - stretch.start_s for stretch in told) == pytest.approx(LONG_S, abs=3)
    assert told[1].end_s - told[1].start_s == pytest.approx(len(COMM), abs=2)


def test_the_analyst_thins_what_it_writes(tmp_path: Path) -> None:
    paths = session(tmp_path / "s")
    out, history = (Appender(path, "analyst") for path in (paths.analysis, paths.history))
    thinning = Thinning(paths.analysis, WHOLE_S * S, SPARSE_S * S)
    analyst = Analyst(out, history, 0, thinning=thinning)
    for second in range(1, 1201):
        analyst.tick(second * S)
    found = [r for r in Tail(paths.analysis).poll() if r["kind"] == "analysis"]
    assert WHOLE_S < len(found) < WHOLE_S + 2 * (1200 - WHOLE_S) / SPARSE_S
    assert found[-1]["mono_ns"] == 1200 * S


def test_whoever_reads_while_blocks_are_given_back_finds_no_bad_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = session(tmp_path / "s")
    seen = []

    def looked_at(path: Path, start: int, end: int) -> bool:
        done = punch(path, start, end)
        tail = Tail(path)
        tail.poll()
        seen.append(tail.bad)
        return done

    monkeypatch.setattr("torchtop.session.thinning.punch", looked_at)
    write(paths, 1000)
    assert seen and not any(seen)


def test_where_blocks_cannot_be_given_back_all_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchtop.session.thinning.punch", lambda *_: False)
    paths = session(tmp_path / "s")
    write(paths, 1000)
    tail = Tail(paths.analysis)
    assert (len(tail.poll()), tail.bad) == (1001, 0)
