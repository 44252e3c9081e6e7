"""Runs with a known bottleneck are told that bottleneck, and what removing it would gain."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from diagnose.cases import (
    CASES,
    DATA,
    FAULTS,
    GPU_BOUND,
    HEALTHY,
    HEALTHY_RUNS,
    LAUNCH_BOUND,
    SLOW,
    TOUCHY,
    played,
    run,
)
from diagnose.made import row, window
from diagnose.play import play, play_job
from diagnose.sim_records import records
from diagnose.simulator import Job, simulate
from torchtop.diagnose.candidate import Candidate
from torchtop.diagnose.facts import Facts, HostFacts, RankFacts
from torchtop.diagnose.frontier import account
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.told.case import Case
from torchtop.diagnose.told.tell import headline
from torchtop.diagnose.verdicts import judge
from torchtop.diagnose.window import summarise
from torchtop.session.records import VERDICTS

COMPUTE = {"forward": 20_000, "backward": 30_000}


@pytest.mark.parametrize("name", CASES)
def test_the_bottleneck_of_a_run_is_told(name: str) -> None:
    case, out = CASES[name], played(name)

    assert out.told == case.verdict, out.verdict
    assert case.cause is None or out.verdict["cause"] == case.cause
    assert out.analyser.malformed == 0


@pytest.mark.parametrize("name", HEALTHY_RUNS)
def test_a_healthy_run_is_told_so(name: str) -> None:
    out = played(name)

    assert out.verdict["severity"] == "ok"
    assert {finding["severity"] for finding in out.last["findings"]} <= {"note"}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.sampler])
def test_without_a_sampler_it_is_told_as_far_as_that_can_be_known(name: str) -> None:
    case, out = CASES[name], played(name, "bare")

    assert out.told == (case.bare or case.verdict), out.verdict


@pytest.mark.parametrize("name", CASES)
def test_records_of_the_first_probes_are_judged_too(name: str) -> None:
    case, out = CASES[name], played(name, "old")

    assert out.told in (case.old, case.bare or case.verdict, case.verdict), out.verdict


@pytest.mark.parametrize("name", CASES)
def test_the_first_verdict_is_the_right_one_and_in_time(name: str) -> None:
    # given the run's analyses, one a second
    case, rows, out = CASES[name], run(name).rows[0], played(name)
    warm_s = rows[10]["end_ns"] / 1e9
    due_s = max(warm_s + 10.0, rows[35]["end_ns"] / 1e9, _recurs_s(name)) + 1.0

    judged = [(at, a["verdict"]) for at, a in enumerate(out.analyses, 1) if not a["warming_up"]]
    first = next(i for i, (_, v) in enumerate(judged) if (v["kind"], v["rank"]) == case.verdict[:2])
    before = {verdict["kind"] for _, verdict in judged[:first]}

    # then it comes first; but what is told now and then has to come twice
    assert judged[first][0] <= due_s
    recurs = case.verdict[0] in ("PERIODIC", "MEMORY PRESSURE")
    assert before <= ({"COMPUTE-BOUND", "UNDECIDED"} if recurs else set())


def _recurs_s(name: str) -> float:
    """When something that recurs has come often enough, and a probe has written that."""
    least = 2 if CASES[name].cause in ("eval", "save") else 3
    known = [told[least - 1] for told in run(name).pauses if len(told) >= least]
    return max(((start_us + pause.us) / 1e6 + 0.5 for _, start_us, pause in known), default=0.0)


@pytest.mark.parametrize("name", CASES)
def test_no_wrong_verdict_stands_for_longer_than_a_window(name: str) -> None:
    case, wrong = CASES[name], 0
    for analysis in played(name).analyses:
        told = analysis["verdict"]
        right = (told["kind"], told["rank"]) == case.verdict[:2]
        wrong = 0 if right or told["severity"] in ("ok", "note", "unknown") else wrong + 1
        assert wrong <= DEFAULT.window_target_s


def test_every_verdict_has_a_run() -> None:
    """But for those of runs that stand still (test_hung), do not tell enough (test_analyser), or
    of which the loss tells (test_script).
    """
    elsewhere = {"HUNG", "UNDECIDED", "NOT FINITE"}
    assert {case.verdict[0] for case in CASES.values()} == {*VERDICTS} - elsewhere


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_stands_once_it_is_made(name: str) -> None:
    out = played(name)

    told = [(a["verdict"]["kind"], a["verdict"]["phase"]) for a in out.analyses if a["window"]]
    changes = sum(a != b for a, b in pairwise(told))

    assert changes <= 2, told


@pytest.mark.parametrize("name", CASES)
def test_the_phases_sum_to_the_step(name: str) -> None:
    out = played(name)

    total = sum(phase["ms"] for phase in out.last["phases"].values())

    assert total == pytest.approx(out.last["step_ms"]["mean"], abs=0.01)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case.verdict[0] != "PERIODIC"])
def test_the_phases_sum_to_the_time_that_passes(name: str) -> None:
    out = played(name)

    window = out.last["window"]
    ends = [row["device_us"] for row in run(name).rows[0]]
    true_us = ends[window["to_step"] - 1] - ends[window["from_step"] - 1]

    if window["recorded"] == window["steps"]:  # nothing was left out
        mean_us = true_us / window["steps"]
        assert out.last["step_ms"]["mean"] == pytest.approx(mean_us / 1000, rel=0.01)


@pytest.mark.parametrize("name", [name for name, case in FAULTS.items() if case.fixed])
def test_the_gain_is_what_removing_the_cause_gains(name: str) -> None:
    case, out = FAULTS[name], played(name)
    assert case.fixed is not None

    gain = run(name).step_us() / simulate(case.fixed).step_us()
    bound = out.verdict["gain_bound"]

    # then the bound is one, but for what also gets faster with the cause, and not far from it
    # (a device that is idle for 95 % of the time is known to one percent at best)
    assert 0.95 <= bound / gain <= 1.15 or abs(1 / gain - 1 / bound) < 0.01


@pytest.mark.parametrize("kind", sorted({case.verdict[0] for case in FAULTS.values()}))
def test_some_run_of_each_kind_is_compared_with_itself_without_the_cause(kind: str) -> None:
    assert any(case.fixed for case in FAULTS.values() if case.verdict[0] == kind)


def test_without_utilization_nothing_is_claimed_of_hosts_that_all_are_slow() -> None:
    # given launch-bound ranks, of which the faster one waits and so hides what its host needs
    verdict = played("one host 3 % slower", "bare").verdict

    assert (verdict["kind"], verdict["gain_bound"]) == ("LAUNCH", None)
    assert verdict["share"] > 0.8


@pytest.mark.parametrize(
    "job",
    [
        LAUNCH_BOUND.with_rank(1, extra_us=lambda step: {"backward": 40_000.0}),
        replace(LAUNCH_BOUND, bucket_us=8_000),
    ],
)
def test_a_wait_that_hides_launches_is_not_told_to_gain_them(job: Job) -> None:
    # given ranks that wait for a device or a link, while their hosts need half of the step
    _, out = play_job(job)

    gain = simulate(job).step_us() / simulate(LAUNCH_BOUND).step_us()

    assert out.verdict["kind"] in ("STRAGGLER", "COMM")
    assert out.verdict["share"] > 0.9
    assert 0.95 <= out.verdict["gain_bound"] / gain <= 1.15


def test_launch_cost_of_a_straggler_is_hidden_again_without_what_makes_it_late() -> None:
    # given ranks whose hosts are the limit, one of which is four times as slow
    job = LAUNCH_BOUND.with_rank(1, launch_us=4 * LAUNCH_BOUND.ranks[1].launch_us)
    _, out = play_job(job)

    gain = simulate(job).step_us() / simulate(LAUNCH_BOUND).step_us()

    assert out.told[:2] == ("STRAGGLER", 1)
    assert 0.95 <= out.verdict["gain_bound"] / gain <= 1.15


def test_one_slow_host_is_no_straggler() -> None:
    # given launch-bound ranks, one of which issues kernels 3 % slower, and waits of most of a step
    name = "one host 3 % slower"
    assert run(name).mean_us(0, "exposed_comm") > 0.5 * run(name).step_us()

    shares = {c["kind"]: c["share"] for c in played(name).last["candidates"]}

    assert shares.get("STRAGGLER", 0.0) < 0.05


def test_a_wait_in_next_that_the_queue_hides_is_no_data_stall() -> None:
    # given a host that spends most of each step in next(), while the device has work queued
    name = "loader hidden"
    assert run(name).mean_us(0, "data_host") > 0.5 * run(name).step_us()

    out = played(name)

    assert out.last["phases"]["data"]["share"] < 0.01
    assert out.last["ranks"][0]["data_host_ms"] > 15


def test_a_wait_of_the_host_that_costs_nothing_is_a_remark() -> None:
    evidence = played("loss.item() after the step").verdict["evidence"]

    remark = next(sentence for sentence in evidence if "the host waits" in sentence)
    assert "between the optimizer and the next batch; that costs less than 5 % here" in remark


def test_a_loader_that_is_late_by_chance_is_not_a_straggler() -> None:
    # given slow loaders everywhere, rank 0's 1 % slower, long enough that rank 1's queue is full
    job = GPU_BOUND.with_rank(0, loader=SLOW).with_rank(1, loader=replace(SLOW, batch_us=277_000))
    late, out = play_job(replace(job, steps=1200))
    assert late.mean_us(1, "data", first=1000) < 0.2 * late.mean_us(0, "data", first=1000)

    assert out.told == DATA


def test_a_tie_is_told_in_the_headline() -> None:
    job = replace(GPU_BOUND, bucket_us=9_000).with_all(loader=replace(SLOW, batch_us=400_000))

    _, out = play_job(job)

    assert out.verdict["kind"] in ("DATA", "COMM")
    assert out.verdict["headline"].startswith("About as much each: ")
    assert "waiting for data" in out.verdict["headline"]
    assert "gradient communication" in out.verdict["headline"]


def changing(job: Job, at: int, before_us: float, after_us: float) -> Job:
    """The backward of rank 1 takes longer, by so much before a step and from it on."""
    extra = lambda step: {"backward": before_us if step < at else after_us}  # noqa: E731
    return replace(job.with_rank(1, extra_us=extra), steps=at + 500)


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize(
    ("bucket_us", "before_us", "after_us", "told"),
    [
        # a note of 5 %, then 11 % of something else
        (2_300.0, 0.0, 5_000.0, ("COMM", "STRAGGLER")),
        (4_600.0, 0.0, 10_000.0, ("COMM", "STRAGGLER")),
        (2_300.0, 20_000.0, 0.0, ("STRAGGLER", "COMM")),
    ],
)
def test_a_larger_cause_is_told_within_a_window(
    cuda: bool, bucket_us: float, before_us: float, after_us: float, told: tuple[str, str]
) -> None:
    # given a cause that stands, and another that comes or goes
    base = replace(GPU_BOUND, cuda=cuda, bucket_us=bucket_us)
    late, out = play_job(changing(base, 400, before_us, after_us))

    change_s = late.rows[0][400]["end_ns"] / 1e9
    kinds = [(at, a["verdict"]["kind"]) for at, a in enumerate(out.analyses, 1)]

    assert {kind for at, kind in kinds if 12 <= at < change_s} == {told[0]}
    assert {kind for at, kind in kinds if at > change_s + 11} == {told[1]}


@pytest.mark.parametrize("first", ["DATA", "COMM"])
def test_causes_of_the_same_size_are_both_told_whichever_stands(first: str) -> None:
    ranked = (Candidate("DATA", 0.3, None, "data", 0.3), Candidate("COMM", 0.28, removable=0.28))
    win = window(COMPUTE, COMPUTE)

    case = Case(next(c for c in ranked if c.kind == first), win, Facts(), DEFAULT)
    text = headline(case, "critical", ranked)

    assert text.startswith("About as much each: ")
    assert "waiting for data 30 %" in text
    assert "gradient communication 28 %" in text


def test_a_smaller_cause_is_not_told_before_waits_that_are_usual_of_ranks() -> None:
    # given ranks that take turns at being slower, for 9 % of the step, which alone is not told,
    # and communication of 5.5 %
    ranks = [COMPUTE | {"exposed": 3_300, "backward": 30_000 + 10_000 * (n == 0)} for n in (0, 1)]
    steps = [
        account([row(step, at_ns=step * 500_000_000, **values) for values in order])
        for step, order in enumerate(([ranks, ranks[::-1]] * 10), start=20)
    ]

    verdict, ranked, _ = judge(summarise(steps, False, DEFAULT), Facts(), None, DEFAULT)
    shares = {candidate.kind: candidate.share for candidate in ranked}

    assert 0.05 < shares["COMM"] < 0.7 * shares["STRAGGLER"] < 0.07
    assert (verdict.kind, verdict.severity) == ("STRAGGLER", "note")


def test_a_sparser_record_comes_to_the_same() -> None:
    # given ranks that record one step in two and one in four
    name = "slow loader, out of phase"

    sparse = play(records(run(name), strides=(2, 4)))

    share = sparse.last["phases"]["data"]["share"]
    full = played(name).last["phases"]["data"]["share"]
    assert sparse.told == DATA
    assert share == pytest.approx(full, abs=0.08)
    assert sparse.last["window"]["recorded"] < 0.4 * sparse.last["window"]["steps"]


@pytest.mark.parametrize("name", ["checkpoints", "garbage", "evaluations"])
def test_pauses_are_told_from_a_sparser_record_too(name: str) -> None:
    sparse = play(records(run(name), strides=(4,)))

    share = played(name).verdict["share"]
    assert sparse.told == CASES[name].verdict
    assert sparse.verdict["share"] == pytest.approx(share, abs=0.1)


def test_a_sync_is_told_from_a_sparser_record_too() -> None:
    sparse = play(records(run("loss.item()"), strides=(4,)))

    assert sparse.told == ("SYNC", None, "other")


def test_the_same_records_give_the_same_analyses() -> None:
    assert play(records(run("rotating"))).analyses == played("rotating").analyses


def test_compiling_is_not_counted() -> None:
    compiling = {0: 30e6, 12: 20e6, 13: 4e6}
    _, out = play_job(replace(GPU_BOUND, compiling=compiling, steps=260))

    assert out.told == HEALTHY
    assert out.last["step_ms"]["max"] < 1000


def test_a_sync_that_is_rare_costs_what_it_costs() -> None:
    # given a result that is read in one step of twenty only
    rare, out = play_job(replace(TOUCHY, sync=("other",), sync_every=20))
    assert rare.step_us() < 1.03 * simulate(TOUCHY).step_us()

    shares = {c["kind"]: c["share"] for c in out.last["candidates"]}

    assert out.told == HEALTHY
    assert shares["SYNC"] < 0.03


# -- CPUs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank_percent", "host_percent", "kind"),
    [
        (3.0, 20.0, "UNDECIDED"),
        (95.0, 60.0, "COMPUTE-BOUND"),
        (30.0, 99.0, "COMPUTE-BOUND"),  # it does not get its turn
        (3.0, None, "COMPUTE-BOUND"),
        (None, 20.0, "COMPUTE-BOUND"),
    ],
)
def test_a_rank_that_sleeps_is_not_called_compute_bound(
    rank_percent: float | None, host_percent: float | None, kind: str
) -> None:
    made = window({"forward": 60, "backward": 40}, {"forward": 60, "backward": 40}, cuda=False)
    ranks = RankFacts(0, "a", cpu_percent=100.0), RankFacts(1, "a", cpu_percent=rank_percent)
    facts = Facts(ranks=ranks, hosts={"a": HostFacts(cores=4, cpu_percent=host_percent, ranks=2)})

    verdict = judge(made, facts, None, DEFAULT).verdict

    assert verdict.kind == kind
    if kind == "UNDECIDED":
        assert verdict.headline.endswith("but rank 1 is idle most of the time")
        assert verdict.evidence[0].startswith("it uses 3 % of one core")


@pytest.mark.parametrize(
    ("percent", "host_percent", "stall", "kind"),
    [
        (20.0, 20.0, 10, "UNDECIDED"),  # idle for 80 %, of which 10 % is told
        (45.0, 20.0, 10, "DATA"),  # for 55 %: less than half of it is not told
        (20.0, 20.0, 40, "DATA"),
        (20.0, 99.0, 10, "DATA"),  # it does not get its turn
        (None, 20.0, 10, "DATA"),
    ],
)
def test_a_small_stall_is_not_what_holds_up_a_rank_that_sleeps(
    percent: float | None, host_percent: float, stall: int, kind: str
) -> None:
    made = window({"data": stall, "data_host_us": stall, "forward": 100 - stall}, cuda=False)
    ranks = (RankFacts(0, "a", cpu_percent=percent),)
    host = HostFacts(cores=4, cpu_percent=host_percent, ranks=1)
    facts = Facts(ranks=ranks, hosts={"a": host}, own_phases={"log": 0.02, "augment": 0.71})

    verdict = judge(made, facts, None, DEFAULT).verdict

    assert verdict.kind == kind
    if kind == "UNDECIDED":
        assert verdict.headline.startswith("Rank 0 is idle 70 % of the time, for no reason")
        assert 'own phase "augment" takes 71 % of each step' in verdict.evidence[1]
        assert "waiting for data, takes 10 % of each step" in verdict.evidence[2]
