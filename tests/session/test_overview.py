"""Sessions at a glance, and the baselines that are kept of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from session.made import held_lock, kept, session, write
from session.made_summary import ended
from torchtop.cli import main
from torchtop.session.baselines import Watched, mark, read_baselines, unmark
from torchtop.session.load import load_paths
from torchtop.session.overview import Overview, entry_of
from torchtop.session.paths import SessionError, SessionPaths
from torchtop.session.saved import saved_summary
from torchtop.session.summary import build_summary


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class TestEntry:
    def test_of_one_that_has_ended_its_summary_counts(self, tmp_path: Path) -> None:
        root = ended(tmp_path / "s", 8000.0, 1000.0, status="failed", exit={"message": "no memory"})
        entry = entry_of(SessionPaths(root))
        assert (entry.state, entry.rate, entry.unit) == ("failed", 8000.0, "samples/s")
        assert (entry.name, entry.workload, entry.started_s) == ("train", "resnet50-cifar10", 1000)
        assert (entry.headline, entry.options) == ("no memory", "batch=256")
        assert not entry.live

    def test_of_one_that_runs_its_last_analysis_counts(self, tmp_path: Path) -> None:
        paths = session(tmp_path / "s", wall_s=1000.0)
        rates = {"samples_per_s": None, "tokens_per_s": 9.0}
        told = {"kind": "analysis", "steps": 7, "throughput": rates, "verdict": {"kind": "DATA"}}
        write(paths.analysis, "analyst", {**told, "steps": 6}, told)
        with held_lock(paths.node("host-a").lock):
            entry = entry_of(paths)
        assert (entry.state, entry.steps, entry.rate) == ("detached", 7, 9.0)
        assert (entry.unit, entry.verdict) == ("tokens/s", "DATA")
        assert entry.live

    @pytest.mark.parametrize(
        ("changes", "live", "lost"),
        [
            ({"steps": 4, "warming_up": True}, "warming up", "too short"),
            ({"steps": 0, "warming_up": True}, "no step yet", "no step"),
            ({"steps": None, "warming_up": True}, "no step yet", "no step"),
            ({"kind": "other"}, "no step yet", "–"),  # before the first analysis
            ({"steps": 400, "warming_up": False}, "UNDECIDED", "UNDECIDED"),
            ({"steps": 0, "probe": {"disabled": "x"}}, "UNDECIDED", "UNDECIDED"),
            ({"steps": 0, "verdict": {"kind": "HUNG"}}, "HUNG", "HUNG"),
            ({"steps": 4, "warming_up": "x", "verdict": []}, "–", "–"),
        ],
    )
    def test_what_has_no_verdict_yet_is_told_as_what_it_is_at(
        self,
        home: Path,
        changes: dict[str, Any],
        live: str,
        lost: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        paths = kept(home, "20260101-000000-a-1111", wall_s=1000.0)
        told = {"kind": "analysis", "verdict": {"kind": "UNDECIDED", "headline": "h"}, **changes}
        write(paths.analysis, "analyst", told)

        def listed() -> tuple[str, dict[str, Any]]:
            assert main(["ls"]) == 0
            line = capsys.readouterr().out.splitlines()[1]
            assert main(["ls", "--json"]) == 0
            return line, json.loads(capsys.readouterr().out)["sessions"][0]

        with held_lock(paths.node("host-a").lock):
            line, row = listed()
            entry = entry_of(paths)
        assert line.endswith(f"  {live}") and (entry.stage or entry.verdict or "–") == live
        assert row["stage"] == (live if live.islower() else None)
        kind = told["verdict"]
        known = isinstance(kind, dict) and told["kind"] == "analysis"
        assert row["verdict"] == (kind.get("kind") if known else None)
        # once its supervisor is gone
        line, row = listed()
        entry = entry_of(paths)
        assert line.endswith(f"  {lost}") and (entry.stage or entry.verdict or "–") == lost
        assert row["stage"] == (lost if lost.islower() else None)

    def test_one_that_is_only_starting_has_no_step_yet(
        self, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        paths = kept(home, "20260101-000000-a-1111", wall_s=time.time())
        entry = entry_of(paths)
        assert (entry.state, entry.stage) == ("starting", "no step yet")
        assert main(["ls"]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith("  no step yet")

    @pytest.mark.parametrize(("seconds", "stage"), [(0.0, "too short"), (12.0, "")])
    def test_one_that_has_ended_before_there_was_a_verdict_was_too_short(
        self, home: Path, seconds: float, stage: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        verdict = {"kind": "UNDECIDED", "headline": "h", "seconds": seconds}
        root = ended(home / "sessions" / "s", 8000.0, verdict=verdict)
        assert entry_of(SessionPaths(root)).stage == stage
        assert main(["ls"]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith(stage or "UNDECIDED")

    def test_show_tells_a_running_ones_first_minute_too(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # given a run whose first minute is not summed up yet
        paths = session(tmp_path / "s", wall_s=1000.0)
        verdict = {"kind": "DATA", "headline": "Waiting for data", "evidence": [], "advice": []}
        rates = {"samples_per_s": 1234.0, "tokens_per_s": None, "steps_per_s": 10.0}
        told = {"kind": "analysis", "steps": 7, "throughput": rates, "verdict": verdict}
        write(paths.analysis, "analyst", told)
        with held_lock(paths.node("host-a").lock):
            assert main(["show", str(paths.root)]) == 0
        shown = capsys.readouterr().out
        assert "**Verdict: DATA.** Waiting for data" in shown and "1,234" in shown

    @pytest.mark.parametrize(
        "damage",
        [{"verdict": "x"}, {"exit": []}, {"loss": 5}, {"steps": "abc"}, {"world_size": "2"}],
    )
    def test_a_summary_of_which_something_is_not_what_it_should_be_is_made_again(
        self, tmp_path: Path, damage: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert saved_summary(SessionPaths(ended(tmp_path / "whole", 8000.0))) is not None
        paths = SessionPaths(ended(tmp_path / "s", 8000.0, **damage))
        assert saved_summary(paths) is None
        assert main(["show", str(paths.root)]) == 0
        assert capsys.readouterr().out.startswith("# ")

    @pytest.mark.parametrize(
        "damage", [{"throughput": {"samples_per_s": "x"}}, {"step_ms": {"mean": {}}}]
    )
    def test_show_says_how_a_damaged_summary_is_made_again(
        self, tmp_path: Path, damage: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = ended(tmp_path / "s", 8000.0, **damage)
        assert main(["show", str(root)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("is not what it should be; make it again: torchtop analyse s")

    def test_show_tells_that_a_run_hangs_now(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # given a run that went well for a minute, and hangs since
        paths = session(tmp_path / "s", wall_s=1000.0)
        minute = {"kind": "minute", "steps": 100, "step_us": 1_000_000, "samples": 500}
        well = {"kind": "COMPUTE-BOUND", "headline": "Healthy", "seconds": 50.0}
        write(paths.history, "analyst", minute | {"recorded": 9, "verdicts": [well]})
        hangs = {"kind": "HUNG", "headline": "The run hangs", "evidence": [], "advice": []}
        write(paths.analysis, "analyst", {"kind": "analysis", "steps": 7, "verdict": hangs})
        with held_lock(paths.node("host-a").lock):
            assert main(["show", str(paths.root)]) == 0
        assert "**Verdict: HUNG.** The run hangs" in capsys.readouterr().out

    def test_without_a_summary_the_supervisors_last_word_counts(self, tmp_path: Path) -> None:
        paths = session(tmp_path / "s")
        write(paths.node("host-a").events, "supervisor", {"kind": "end", "status": "stopped"})
        assert entry_of(paths).state == "stopped"

    def test_without_an_end_and_a_supervisor_it_is_lost(self, tmp_path: Path) -> None:
        paths = session(tmp_path / "s")
        write(paths.node("host-a").events, "supervisor")
        paths.node("host-a").lock.touch()
        assert entry_of(paths).state == "lost"

    def test_of_one_that_is_lost_the_steps_that_its_ranks_have_counted_are_told(
        self, tmp_path: Path
    ) -> None:
        # given ranks that went on for a moment after the last analysis
        paths = session(tmp_path / "s", wall_s=1000.0)
        write(paths.node("host-a").events, "supervisor")
        write(paths.analysis, "analyst", {"kind": "analysis", "steps": 40})
        beats = [{"kind": "beat", "step": 1, "marker": "x" * 200}] * 500
        for rank, done in enumerate((57, 55)):
            file = paths.ranks / f"{rank}-0-{rank + 10}.jsonl"
            totals = [{"kind": "totals", "to_step": count} for count in (9, done)]
            write(file, "rank", totals[0], *beats, totals[1], rank=rank, attempt=0)
            write(paths.ranks / f"{rank}-0-{rank + 10}.process.jsonl", "process", rank=rank)
        # then it says as many as its summary
        assert entry_of(paths).steps == build_summary(paths)["steps"] == 55

    def test_odd_files_are_missing_values(self, tmp_path: Path) -> None:
        odd = {"throughput": 3, "verdict": [], "wall_s": "x", "steps": None, "status": {}}
        entry = entry_of(SessionPaths(ended(tmp_path / "s", 8000.0, **odd)))
        assert (entry.rate, entry.verdict, entry.wall_s, entry.steps) == (None, "", None, None)


def test_an_ended_session_is_read_once_until_its_summary_changes(tmp_path: Path) -> None:
    root = ended(tmp_path / "s", 8000.0)
    overview = Overview()
    first = overview.look([SessionPaths(root)])[0]
    assert overview.look([SessionPaths(root)])[0] is first
    told = json.loads((root / "summary.json").read_text())
    (root / "summary.json").write_text(json.dumps({**told, "steps": 5}))
    os.utime(root / "summary.json", (1, 1))
    assert overview.look([SessionPaths(root)])[0].steps == 5


class TestBaselines:
    def test_one_is_kept_for_each_workload(self, home: Path, tmp_path: Path) -> None:
        for name, rate, workload in (("a", 8000.0, "x"), ("b", 9000.0, "x"), ("c", 10.0, "y")):
            root = ended(tmp_path / name, rate, workload=workload)
            mark(load_paths(SessionPaths(root)))
        kept = read_baselines()
        assert {workload: base.session for workload, base in kept.items()} == {"x": "b", "y": "c"}
        assert (home / "baselines.json").stat().st_mode & 0o077 == 0
        unmark("x")
        assert set(read_baselines()) == {"y"}

    def test_the_speed_up_is_in_a_unit_that_both_have(self, home: Path, tmp_path: Path) -> None:
        base = mark(load_paths(SessionPaths(ended(tmp_path / "a", 8000.0))))
        assert base.speed_up({"samples_per_s": 10_000.0}) == (1.25, "samples/s", 8000.0)
        assert base.speed_up({"samples_per_s": None, "steps_per_s": 31.25}) == (
            1.0,
            "steps/s",
            31.25,
        )
        assert base.speed_up({"tokens_per_s": 5.0}) is None

    def test_a_session_without_figures_is_none(self, home: Path, tmp_path: Path) -> None:
        with pytest.raises(SessionError, match="cannot be a baseline"):
            mark(load_paths(SessionPaths(ended(tmp_path / "a", None))))
        assert read_baselines() == {}

    def test_a_file_that_makes_no_sense_has_none(self, home: Path) -> None:
        home.mkdir()
        for text in ("", "[]", '{"baselines": [1]}', '{"baselines": {"x": 1, "y": {}}}'):
            (home / "baselines.json").write_text(text)
            assert all(not base.rates for base in read_baselines().values())

    def test_a_watcher_sees_a_change_and_an_end(self, home: Path, tmp_path: Path) -> None:
        watched = Watched()
        assert watched.of("resnet50-cifar10") is None
        mark(load_paths(SessionPaths(ended(tmp_path / "a", 8000.0))))
        found = watched.of("resnet50-cifar10")
        assert found is not None and found.session == "a"
        mark(load_paths(SessionPaths(ended(tmp_path / "another", 9000.0))))
        found = watched.of("resnet50-cifar10")
        assert found is not None and found.session == "another"
        (home / "baselines.json").unlink()
        assert watched.of("resnet50-cifar10") is None
