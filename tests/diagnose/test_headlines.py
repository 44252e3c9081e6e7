"""Headlines fit into a line of the smallest terminal, whatever stands in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from diagnose.cases import CASES, played
from diagnose.made import window
from diagnose.play import play
from diagnose.sim_records import START_NS, source_of
from torchtop.diagnose import loading, updates, words
from torchtop.diagnose.ages import Ranks
from torchtop.diagnose.candidate import Candidate
from torchtop.diagnose.facts import Facts, GpuFacts, HostFacts, RankFacts, Stranger
from torchtop.diagnose.findings import Scene, find, settle
from torchtop.diagnose.frontier import FRONTIER_PHASES
from torchtop.diagnose.hang import find as find_hang
from torchtop.diagnose.pauses import Pauses, Recurring
from torchtop.diagnose.ranks import RankState
from torchtop.diagnose.stretch import Stretch
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.told import tell
from torchtop.diagnose.told.case import Case
from torchtop.diagnose.unseen import Unseen
from torchtop.diagnose.verdict import Verdict
from torchtop.diagnose.verdicts import judge
from torchtop.diagnose.window import Window

LONG = "x" * 150
MOST = 99_999
RANKS = (None, 0, MOST)
GROUPS: tuple[tuple[int, ...], ...] = ((), (4, 5), tuple(range(MOST - 400, MOST)))
COMPUTE = {"forward": 20_000, "backward": 30_000, "exposed": 200}
CAUSES: dict[str, tuple[str | None, ...]] = {
    "DATA": (
        None,
        loading.NO_WORKERS,
        loading.TOO_FEW_WORKERS,
        loading.BUSY_WORKERS,
        loading.STORAGE,
        loading.HEAD_OF_LINE,
        loading.MAIN_PROCESS,
    ),
    "H2D": ("unpinned", "large"),
    "OPTIMIZER": (None, updates.PER_TENSOR, updates.NOT_FUSED),
    "PERIODIC": (None,),
}
PAUSES = [
    Recurring(what, 1.0, 1e9, 1e9, MOST, MOST, MOST, phase)
    for what in ("eval", "save", "gc", "")
    for phase in FRONTIER_PHASES
]


def cases(kind: str) -> Iterator[Case]:
    """Every way in which this kind can be told, with the longest numbers."""
    busy = HostFacts(cores=MOST, cpu_percent=100.0, ranks=MOST)
    for cuda, group, rank, phase, cause, removable, pause in product(
        (True, False),
        GROUPS,
        RANKS,
        FRONTIER_PHASES,
        CAUSES.get(kind, (None,)),
        (None, 0.05, 0.99),
        PAUSES if kind == "PERIODIC" else PAUSES[:1],
    ):
        win = _window(cuda, group)
        facts = Facts(ranks=(RankFacts(0, "a"),), hosts={"a": busy} if rank else {})
        recurring = Pauses((pause, *PAUSES[:3]) if rank else (pause,))
        made = Candidate(kind, 1.0, rank, phase, removable, cause=cause)
        yield Case(made, win, facts, DEFAULT, recurring)


@cache
def _window(cuda: bool, group: tuple[int, ...]) -> Window:
    made = window(COMPUTE, COMPUTE, cuda=cuda)
    return replace(made, excess=replace(made.excess, group=group))


def fits(text: str) -> bool:
    return 0 < len(text) <= words.HEADLINE and "…" not in text


@pytest.mark.parametrize("kind", tell.TELLERS)
def test_every_bottleneck_is_told_in_a_line(kind: str) -> None:
    others = [Candidate(other, 1.0) for other in tell.TELLERS if other != kind]
    for case in cases(kind):
        for severity, count in product(("critical", "note"), (0, 1, len(others))):
            text = tell.headline(case, severity, [case.candidate, *others[:count]])

            assert fits(text), text
            assert "100 %" in text


def test_a_bottleneck_of_unknown_size_is_told_in_a_line() -> None:
    for case in cases("LAUNCH"):
        unsure = replace(case, candidate=replace(case.candidate, sure=False))
        assert fits(tell.headline(unsure, "warn", [unsure.candidate]))


def test_what_could_be_won_is_told_unless_it_is_little() -> None:
    for kind in tell.TELLERS:
        for case in cases(kind):
            if case.candidate.removable == 0.99:
                assert "up to 100x faster" in tell.headline(case, "critical", [case.candidate])


@pytest.mark.parametrize("kind", ["COMPUTE-BOUND", "UNDECIDED", "STRAGGLER", "SYNC"])
def test_every_finding_is_told_in_a_line_alone_and_in_place_of_a_verdict(kind: str) -> None:
    gpu = GpuFacts(
        index=MOST,
        name=LONG,
        util_percent=100.0,
        sm_clock_mhz=10_000.0,
        sm_clock_max_mhz=30_000.0,
        throttle={f"{LONG}{n}": 1.0 for n in range(9)},
        strangers=tuple(Stranger(MOST, LONG, 10**15) for _ in range(MOST)),
    )
    unnamed = replace(gpu, index=None)
    falls = replace(unnamed, strangers=(), memory_used_bytes=(10**15, 1) * 9)
    win = window(COMPUTE, COMPUTE)
    win = replace(
        win,
        ranks=tuple(replace(r, rank=MOST + r.rank, stretch=Stretch(9e9, 1e6)) for r in win.ranks),
    )
    known = [
        RankFacts(MOST, gpu=gpu, gpu_uuid="a", retries=MOST, retries_s=60.0),
        RankFacts(MOST + 1, gpu=falls),
        RankFacts(MOST + 2, gpu=unnamed, retries=1, retries_s=60.0),
        *(RankFacts(MOST + n, gpu_uuid="a") for n in range(3, 9)),
    ]
    scene = Scene(win, Facts(ranks=tuple(known)), (), DEFAULT)

    found = find(scene)

    assert len({finding.headline for finding in found}) >= 6
    for finding in found:
        verdict = Verdict(kind, "critical", 1.0, "", finding.rank, "pre_optimizer", 100.0)
        told, beside = settle(verdict, [finding], scene)
        assert fits(finding.headline), finding.headline
        assert fits(told.headline) or told.headline == "", told.headline
        assert not told.of or not beside


def test_every_doubt_is_told_in_a_line() -> None:
    limits = replace(DEFAULT, note=0.99999)
    slow = COMPUTE | {"backward": 90_000_000, "lag_forward_us": 20, "lag_backward_us": None}
    unknown = {"unknown": ("exposed_comm", "pre_optimizer", "optimizer", "backward", "data")}
    windows = [
        window(COMPUTE, COMPUTE),
        window(COMPUTE, slow),
        window(COMPUTE | unknown, COMPUTE),
        window(COMPUTE | {"unknown": ("pre_optimizer",)}, COMPUTE),
        window(COMPUTE | {"data": 80_000_000, "data_host_us": 1}),
        *(window({phase: 80_000_000}) for phase in ("pre_optimizer", "other", "forward")),
    ]
    for win in windows:
        for level in (DEFAULT, limits):
            text = judge(win, Facts(), None, level).verdict.headline
            assert fits(text), text


@pytest.mark.parametrize("many", [1, 2, 3, 500])
def test_ranks_that_hang_or_are_missing_are_told_in_a_line(many: int) -> None:
    def state(rank: int, marker: str, step: int) -> RankState:
        header = {"pid": 1, "boot_id": "b", "host": "a"}
        made = RankState(rank, 0, source_of(rank), header)
        beat = {"mono_ns": START_NS, "marker": marker, "marker_ns": START_NS - 10**17}
        made.take_beat(beat | {"step": step})
        return made

    for marker, behind in product(("O1", "BC", "DX", "E0", "nBC", "B0"), (0, 1, many // 2)):
        ranks: Ranks = {
            MOST + n: state(MOST + n, marker, 10**9 + (n >= behind)) for n in range(many)
        }
        verdict = find_hang(ranks, {}, START_NS, 8.0, DEFAULT, {})
        assert verdict is not None
        assert fits(verdict.headline), verdict.headline
        if 0 < behind < many:
            ended = {MOST + n: True for n in range(behind)}
            verdict = find_hang(ranks, {}, START_NS, 8.0, DEFAULT, ended)
            assert verdict is not None and " ended: " in verdict.headline
            assert fits(verdict.headline), verdict.headline
    unseen = Unseen()
    for rank in range(MOST - many, MOST):
        unseen.take(rank, 0, {"kind": "probe", "disabled": LONG})
    blind = unseen.verdict(range(MOST))
    assert blind is not None
    assert fits(blind.headline)
    header = {"kind": "header", "mono_ns": START_NS, "world_size": MOST + many}
    assert len(play([(source_of(0), header)]).verdict["headline"]) <= words.HEADLINE


def test_a_reason_of_any_length_is_cut_between_words() -> None:
    assert words.shortened("a  b\nc", 80) == "a b c"
    assert words.shortened("word " * 40, 20) == "word word word…"
    assert words.shortened("x" * 40, 20) == "x" * 19 + "…"


@pytest.mark.parametrize("name", CASES)
def test_no_run_is_told_more_than_a_line(name: str) -> None:
    for analysis in played(name).analyses:
        for told in (analysis["verdict"], *analysis["findings"]):
            assert fits(told["headline"]), told["headline"]
