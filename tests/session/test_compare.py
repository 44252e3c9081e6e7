"""Comparing sessions: what is noise, where noise is known from, and what is said without it."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from session.made import held_lock, session, write
from session.made_summary import ended, summary
from torchtop.session import noise
from torchtop.session.compare import Comparison, Finding, as_json, compare
from torchtop.session.limits import breaches_json, judge, parse_limit
from torchtop.session.measures import measures
from torchtop.session.paths import SessionError
from torchtop.session.records import encode
from torchtop.session.sides import choose

GPU_BOUND, HOST_BOUND = 0.003, 0.1
TRIALS = 20
NEEDED = 18


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own; the folder of its sessions."""
    monkeypatch.setenv("TORCHTOP_HOME", str(tmp_path / "home"))
    sessions = tmp_path / "home" / "sessions"
    sessions.mkdir(parents=True)
    return sessions


def many(folder: Path, name: str, rates: list[float], start_s: float = 0.0, **changes: Any) -> str:
    """Sessions with these throughputs, one a minute; as a side of a command line."""
    made = [
        ended(folder / f"{name}-{i:02}", rate, start_s + 60.0 * i, name=name, **changes)
        for i, rate in enumerate(rates)
    ]
    return ",".join(map(str, made))


def strayed(rng: random.Random, count: int, mean: float, spread: float) -> list[float]:
    return [mean * math.exp(rng.gauss(0, spread)) for _ in range(count)]


def compared(*references: str, each: bool = False) -> Comparison:
    return compare(*choose(references, each))


def speed(comparison: Comparison) -> Finding:
    return comparison.row("throughput").findings[0]


class TestHowOftenItIsRight:
    @pytest.mark.parametrize("spread", [HOST_BOUND, GPU_BOUND])
    def test_equal_sides_of_five_repeats_are_called_equal(self, home: Path, spread: float) -> None:
        rng = random.Random(1)
        calls = [
            speed(
                compared(
                    *(many(home, f"{side}{trial}", strayed(rng, 5, 8000, spread)) for side in "ab")
                )
            ).call
            for trial in range(TRIALS)
        ]
        assert calls.count("same") >= NEEDED

    @pytest.mark.parametrize("repeats", [3, 5])
    def test_a_slowdown_of_five_per_cent_of_a_gpu_bound_job_is_found(
        self, home: Path, repeats: int
    ) -> None:
        rng = random.Random(2)
        calls = []
        for trial in range(TRIALS):
            one = many(home, f"a{trial}", strayed(rng, repeats, 8000, GPU_BOUND))
            two = many(home, f"b{trial}", strayed(rng, repeats, 7600, GPU_BOUND))
            calls.append(speed(compared(one, two)).call)
        assert calls.count("worse") >= NEEDED

    def test_single_runs_with_a_history_do_both(self, home: Path, tmp_path: Path) -> None:
        rng = random.Random(3)
        many(home, "earlier", strayed(rng, 8, 8000, GPU_BOUND))
        equal, slower = [], []
        for trial in range(TRIALS):
            a, b, c = (
                str(ended(tmp_path / f"{trial}" / name, rate))
                for name, rate in zip(
                    "abc",
                    (
                        *strayed(rng, 2, 8000, GPU_BOUND),
                        *strayed(rng, 1, 7600, GPU_BOUND),
                    ),
                    strict=True,
                )
            )
            equal.append(speed(compared(a, b)).call)
            slower.append(speed(compared(a, c)).call)
        assert equal.count("same") >= NEEDED
        assert slower.count("worse") >= NEEDED


class TestWhereNoiseIsKnownFrom:
    def test_two_single_runs_without_a_history_are_not_told_apart(self, home: Path) -> None:
        found = compared(many(home, "a", [8000.0]), many(home, "b", [4000.0]))
        assert speed(found).call == "unknown"
        difference = speed(found).difference
        assert difference is not None and difference.relative == pytest.approx(-0.5)
        assert found.floor is None
        assert any("neither repeats nor earlier sessions" in note for note in found.notes)

    def test_earlier_sessions_of_the_same_configuration(self, home: Path) -> None:
        many(home, "earlier", [8000.0, 8020, 7990, 8010])
        found = compared(many(home, "a", [8000.0], 900), many(home, "b", [7000.0], 960))
        assert found.floor is not None
        assert "4 earlier sessions of the same configuration" in found.floor.source
        assert speed(found).call == "worse"

    def test_earlier_sessions_beside_a_directory_that_was_given(
        self, home: Path, tmp_path: Path
    ) -> None:
        many(tmp_path / "kept", "earlier", [8000.0, 8020, 7990, 8010])
        found = compared(
            many(tmp_path / "kept", "a", [8000.0]), many(tmp_path / "new", "b", [7000.0])
        )
        assert found.floor is not None and speed(found).call == "worse"

    def test_earlier_sessions_with_other_options_where_there_are_no_closer_ones(
        self, home: Path
    ) -> None:
        many(home, "earlier", [4000.0, 4010, 3990, 4005], options={"batch": 64})
        found = compared(many(home, "a", [8000.0], 900), many(home, "b", [7000.0], 960))
        assert found.floor is not None
        assert "of this workload with other options" in found.floor.source
        assert found.floor.noise.share < 0.01

    def test_another_workload_or_a_hopeless_session_says_nothing(self, home: Path) -> None:
        many(home, "other", [10.0, 20.0, 30.0], workload="gpt2-small")
        many(home, "short", [8000.0, 9000.0], steps=15)
        many(home, "empty", [None, None])  # type: ignore[list-item]
        (home / "torn").mkdir()
        (home / "torn" / "session.json").write_text("{")
        (home / "torn" / "summary.json").write_text("[]")
        found = compared(many(home, "a", [8000.0]), many(home, "b", [7000.0]))
        assert found.floor is None

    def test_repeats_on_one_side_are_the_noise_of_both(self, home: Path) -> None:
        found = compared(many(home, "a", [8000.0, 8020, 7990, 8010]), many(home, "b", [7000.0]))
        assert found.floor is not None and found.floor.source == "4 repeats here"
        assert speed(found).call == "worse"

    def test_few_repeats_are_said_to_be_few(self, home: Path) -> None:
        found = compared(many(home, "a", [8000.0, 8020]), many(home, "b", [8010.0]))
        assert any("from 2 runs only" in note for note in found.notes)


class TestSides:
    def test_more_sessions_than_configurations_are_repeats(self, home: Path) -> None:
        small = [ended(home / f"s{i}", 4000.0 + i, options={"batch": 64}) for i in range(2)]
        large = [ended(home / f"l{i}", 8000.0 + i) for i in range(2)]
        mixed = [str(p) for pair in zip(small, large, strict=True) for p in pair]
        sides, notes = choose(mixed)
        assert [[run.paths.id for run in side.runs] for side in sides] == [
            ["s0", "s1"],
            ["l0", "l1"],
        ]
        assert any("taken as repeats" in note for note in notes)
        assert [len(side.runs) for side in choose(mixed, each=True)[0]] == [1, 1, 1, 1]

    def test_sessions_of_one_configuration_alone_stay_apart(self, home: Path) -> None:
        three = [str(ended(home / f"s{i}", 4000.0)) for i in range(3)]
        assert [side.letter for side in choose(three)[0]] == ["A", "B", "C"]

    def test_a_name_stands_for_all_that_are_like_the_latest(self, home: Path) -> None:
        many(home, "base", [8000.0, 8010])
        ended(home / "base-00-older", 100.0, name="base", options={"batch": 1})
        many(home, "new", [7000.0])
        sides, notes = choose(["base", "new"])
        assert [run.paths.id for run in sides[0].runs] == ["base-01", "base-00"]
        assert any("2 of 3 sessions of that name" in note for note in notes)

    def test_what_differs_is_listed_and_what_does_not_is_not(self, home: Path) -> None:
        one = many(home, "a", [8000.0])
        two = many(home, "b", [7000.0], options={"batch": 512, "amp": True}, world_size=4)
        found = compared(one, two)
        assert found.differing == {
            "option batch": ["256", "512"],
            "option amp": [None, "true"],
            "ranks": ["2", "4"],
        }

    @pytest.mark.parametrize(
        ("references", "told"),
        [
            (["one"], "two sides"),
            (["one", "one"], "named 2 times"),
            (["one,one", "two"], "named 2 times"),
            (["one", "nosuch"], "nosuch"),
            (["one", ",,"], "no session"),
            (["one", "empty"], "nothing to compare"),
            (["one", "newer"], "newer torchtop"),
            (["one", "odd"], "nothing to compare"),
        ],
    )
    def test_bad_sides_are_one_line(self, home: Path, references: list[str], told: str) -> None:
        ended(home / "one", 8000.0, name="1")
        ended(home / "two", 8000.0, name="2")
        ended(home / "empty", None, name="3")
        ended(home / "newer", 8000.0, name="4", schema=99)
        odd = {"steps": "many", "ranks": [1, None], "gpus": {}, "phases": [], "throughput": 3}
        ended(home / "odd", 8000.0, name="5", **odd)
        with pytest.raises(SessionError, match=told) as error:
            compared(*references)
        assert len(str(error.value).splitlines()) == 1

    def test_odd_fields_are_missing_values(self, home: Path) -> None:
        odd = {"ranks": [1, None], "gpus": [3], "phases": {"data": 5}, "step_ms": {"mean": "x"}}
        found = compared(many(home, "a", [8000.0]), many(home, "b", [8000.0], **odd))
        assert found.row("step_ms").values[1] is None
        assert found.row("step_ms").findings[0].call == "missing"
        json.dumps(as_json(found), allow_nan=False)

    def test_a_session_without_a_summary_is_summed_up(self, home: Path) -> None:
        one = Path(many(home, "a", [8000.0]))
        (one / "summary.json").unlink()
        (one / "history.jsonl").write_bytes(
            encode({"kind": "minute", "seq": 0, "mono_ns": 1, "steps": 100, "step_us": 3_000_000,
                    "samples": 25_600, "to_step": 110})
        )  # fmt: skip
        found = compared(str(one), many(home, "b", [8000.0]))
        assert found.row("throughput").values[0] == pytest.approx(25_600 / 3.0)


class TestRunning:
    def test_its_figures_are_those_of_its_last_analysis_until_there_is_a_minute(
        self, home: Path
    ) -> None:
        paths = session(home / "live", host="host-a", workload="train.py")
        rates = {"samples_per_s": 500.0, "tokens_per_s": None, "steps_per_s": 2.0}
        phases = {"data": {"ms": 5.0, "share": 0.5}}
        told = {"kind": "analysis", "steps": 90, "throughput": rates, "phases": phases}
        write(paths.analysis, "analyst", told)
        totals = {"kind": "totals", "from_step": 1, "to_step": 90}
        write(paths.ranks / "0-0-9.jsonl", "process", totals, rank=0, attempt=0)
        with held_lock(paths.node("host-a").lock):
            found = compared(str(paths.root), many(home, "b", [1000.0]))
        assert found.row("throughput").values == (500.0, 1000.0)
        assert found.row("data_ms").values[0] == 5.0
        assert any("is running" in note for note in found.notes)


class TestMeasures:
    def test_the_unit_is_one_that_all_have(self) -> None:
        words = summary(8000.0, throughput={"tokens_per_s": 10.0, "steps_per_s": 2.0})
        assert measures([words, words])[0].title == "tokens/s"
        assert measures([words, summary(8000.0)])[0].title == "steps/s"

    def test_energy_is_that_of_the_gpus_in_use_for_a_thousand_samples(self) -> None:
        energy = next(m for m in measures(()) if m.key == "energy")
        assert energy.read(summary(8000.0)) == pytest.approx(1000 / 8000 * 1e3)
        idle = {"uuid": "GPU-7", "power_mean_w": 70.0}
        told = summary(8000.0)
        assert energy.read({**told, "gpus": [*told["gpus"], idle]}) == energy.read(told)

    def test_a_figure_of_a_gpu_that_is_not_known_makes_no_sum(self) -> None:
        told = summary(8000.0)
        told["gpus"][1]["power_mean_w"] = None
        assert next(m for m in measures(()) if m.key == "power").read(told) is None


class TestManyFigures:
    def test_equal_sides_seldom_show_any_difference(self, home: Path) -> None:
        # given sides whose every figure strays by itself: twenty chances to be wrong
        rng = random.Random(5)
        wrong = 0
        for trial in range(TRIALS):
            sides = []
            for name in "ab":
                runs = []
                for i in range(5):
                    told = summary(8000.0 * math.exp(rng.gauss(0, 0.1)))
                    phases = {
                        phase: {"ms": 5.0 * math.exp(rng.gauss(0, 0.1)), "share": 0.1}
                        for phase in told["phases"]
                    }
                    root = home / f"{name}{trial}-{i}"
                    runs.append(str(ended(root, 8000.0, phases=phases)))
                sides.append(",".join(runs))
            calls = [f.call for row in compared(*sides).rows for f in row.findings]
            wrong += any(call in ("better", "worse", "changed") for call in calls)
        assert wrong <= TRIALS - NEEDED


class TestLimits:
    @pytest.mark.parametrize(
        ("rate", "limit", "failed", "told"),
        [
            (7000.0, "throughput<-5%", True, "-12"),
            (7000.0, "throughput < -20%", False, "-12"),
            (7990.0, "throughput<-0.01%", False, "within the noise"),
            (7000.0, "step_ms>1", True, "step_ms changed by"),
            (7000.0, "step_ms>10%", True, "%"),
            (9000.0, "throughput<-5%", False, "+12"),
            (7000.0, "p95_ms>+50.5%", False, "p95_ms"),
        ],
    )
    def test_a_limit_fails_when_it_is_broken_beyond_the_noise(
        self, home: Path, rate: float, limit: str, failed: bool, told: str
    ) -> None:
        found = compared(
            many(home, "a", [8000.0, 8020, 7990, 8010]),
            many(home, "b", [rate, rate * 1.001, rate * 0.999]),
        )
        (breach,) = judge(found, parse_limit(limit))
        assert breach.failed is failed
        assert told in breach.why
        assert breaches_json([breach])["failed"] is failed

    def test_without_noise_the_measured_change_decides_and_says_so(self, home: Path) -> None:
        found = compared(many(home, "a", [8000.0]), many(home, "b", [7000.0]))
        (breach,) = judge(found, parse_limit("throughput<-5%"))
        assert breach.failed and "noise is not known" in breach.why

    @pytest.mark.parametrize(
        ("base", "rate", "failed", "call"),
        [
            ([8000.0, 7600.0], 2000.0, True, "unclear"),  # two runs tell their noise badly
            ([8000.0, 7600.0], 7900.0, False, "unclear"),
            ([8000.0, 3000.0, 9000.0, 2000.0], 400.0, True, "unclear"),  # there is too much of it
            ([8000.0, 8005.0, 7998.0], 2000.0, True, "worse"),
            ([8000.0, 8005.0, 7998.0], 7990.0, False, "same"),
        ],
    )
    def test_noise_that_hides_large_changes_lets_none_pass(
        self, home: Path, base: list[float], rate: float, failed: bool, call: str
    ) -> None:
        found = compared(many(home, "a", base), many(home, "b", [rate]))

        (breach,) = judge(found, parse_limit("throughput<-5%"))

        assert (breach.failed, speed(found).call) == (failed, call)
        if call == "unclear" and failed:
            assert "too few runs, or too much noise, to tell" in breach.why

    def test_one_of_many_figures_is_not_within_an_interval_that_it_is_outside_of(
        self, home: Path
    ) -> None:
        rng = random.Random(4)
        seen = set()
        for trial in range(40):
            sides = [many(home, f"{s}{trial}", strayed(rng, 3, 8000, 0.02)) for s in "ab"]
            for row in compared(*sides).rows[1:]:
                (finding,) = row.findings
                if (told := finding.difference) and told.low is not None and told.high is not None:
                    seen.add(finding.call)
                    assert finding.call != "same" or told.low <= 0 <= told.high
        assert "same" in seen

    def test_what_was_not_measured_has_not_passed(self, home: Path) -> None:
        found = compared(many(home, "a", [8000.0]), many(home, "b", [8000.0], gpus=[], ranks=[]))
        (breach,) = judge(found, parse_limit("memory>5%"))
        assert breach.failed and "not measured" in breach.why

    def test_it_is_tried_on_every_side_but_the_first(self, home: Path) -> None:
        found = compared(*(many(home, name, [8000.0 + i]) for i, name in enumerate("abc")))
        assert [b.side.letter for b in judge(found, parse_limit("throughput<-5%"))] == ["B", "C"]

    @pytest.mark.parametrize("text", ["", "throughput", "throughput=5%", "speed<-5%", "p95<x%"])
    def test_a_limit_that_makes_no_sense_is_one_line(self, text: str) -> None:
        with pytest.raises(SessionError, match="--fail-if") as error:
            parse_limit(text)
        assert len(str(error.value).splitlines()) == 1


def test_the_json_says_what_the_table_says(home: Path) -> None:
    one = many(home, "a", [8000.0, 8020, 7990])
    two = many(home, "b", [7000.0, 7010, 7020], options={"batch": 512})
    told = as_json(compared(one, two))
    assert [side["side"] for side in told["sides"]] == ["A", "B"]
    assert told["noise"]["runs"] == 6 and told["significance"] == noise.SIGNIFICANCE
    first = told["measures"][0]
    assert first["measure"] == "throughput" and first["better"] == "more"
    (difference,) = first["differences"]
    low, high = difference["interval"]
    assert low < difference["relative"] < high < 0
    assert difference["call"] == "worse" and difference["p_value"] < 0.01
    assert told["differing"] == {"option batch": ["256", "512"]}
