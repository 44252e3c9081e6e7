"""What a run tells of itself: epochs, its own phases, losses that are no numbers, and waits that
cannot be told from forward.
"""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.made import row, window
from torchtop.diagnose.analyser import Analyser
from torchtop.diagnose.context import Learnt, gather
from torchtop.diagnose.facts import Facts
from torchtop.diagnose.frontier import account
from torchtop.diagnose.pace import Paces
from torchtop.diagnose.ranks import RankState
from torchtop.diagnose.rows import parse_steps
from torchtop.diagnose.thresholds import DEFAULT
from torchtop.diagnose.verdicts import judge
from torchtop.session.records import PHASES

S = 1_000_000_000


class Told:
    """An analyser of some ranks, fed by hand."""

    def __init__(self, ranks: int = 1) -> None:
        self.analyser = Analyser()
        self._seq = dict.fromkeys(range(ranks), 0)
        for rank in range(ranks):
            self.feed("header", 0, rank, world_size=ranks, host="here")

    def feed(self, kind: str, at_s: float, rank: int = 0, **fields: Any) -> None:
        stamp = {"seq": self._seq[rank], "mono_ns": int(at_s * S), "rank": rank}
        record = {"kind": kind, **stamp, **fields}
        self._seq[rank] += 1
        self.analyser.feed(f"ranks/{rank}-0-{100 + rank}.jsonl", record)

    def totals(self, at_s: float, start: int, steps: int, rank: int = 0, **own_us: int) -> None:
        sums = {"steps": steps, "phase_steps": steps, "host_us": 10_000 * steps}
        self.feed(
            "totals", at_s, rank, from_step=start, to_step=start + steps, **sums, own_us=own_us
        )

    def analyse(self, at_s: float) -> dict[str, Any]:
        return self.analyser.analyse(int(at_s * S))


# -- epochs ----------------------------------------------------------------------------------------


def test_the_end_of_the_epoch_follows_from_its_batches() -> None:
    told = Told()
    told.feed("beat", 1, loader_at=[2, 300, 391])
    told.feed("beat", 2, loader_at=[3, 11, 391])
    told.feed("beat", 12, loader_at=[3, 111, 391])

    assert told.analyse(12)["progress"] == {
        "step": None,
        "total_steps": None,
        "eta_s": None,
        "epoch": 3,
        "epoch_batch": 111,
        "epoch_batches": 391,
        "epoch_eta_s": 28.0,
    }


@pytest.mark.parametrize(
    ("at", "epoch", "eta"),
    [
        (None, None, None),
        ([0, 7, None], 0, None),  # a stream without a length
        ([0, 7], None, None),
        ("nonsense", None, None),
        ([0, None, 3], None, None),
    ],
)
def test_what_is_not_told_is_not_made_up(at: Any, epoch: int | None, eta: float | None) -> None:
    told = Told()
    told.feed("beat", 1, loader_at=at)
    told.feed("beat", 2, loader_at=at)

    progress = told.analyse(2)["progress"]
    assert (progress["epoch"], progress["epoch_eta_s"]) == (epoch, eta)


# -- own phases ------------------------------------------------------------------------------------


def test_own_phases_are_means_over_steps_and_ranks() -> None:
    told = Told(2)
    told.totals(1, 1, 10, 0, augment=20_000)
    told.totals(1, 1, 10, 1, augment=40_000, validate=10_000)
    told.totals(2, 11, 10, 0, augment=20_000)

    assert told.analyse(2)["own_phases"] == {
        "augment": {"ms": 3.0, "share": 0.3},
        "validate": {"ms": 1.0, "share": 0.1},
    }


def test_a_minute_has_their_sums() -> None:
    told = Told()
    told.totals(1, 1, 10, augment=20_000)
    told.totals(2, 11, 10, augment=30_000, validate=5)
    told.feed("scalars", 2, step=20, values={"loss": 1.0})

    minute = told.analyser.minute(60 * S)
    assert minute is not None
    assert (minute["own_us"], minute["own_steps"]) == ({"augment": 50_000, "validate": 5}, 20)


# -- losses ----------------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_is_a_finding_until_it_is_one_again() -> None:
    told = Told(2)
    told.feed("scalars", 1, 1, step=30, values={"loss (backward)": 0.5})
    assert told.analyse(1)["findings"] == []

    told.feed("not_finite", 2, 1, step=40, name="loss (backward)", value="nan")
    told.feed("scalars", 2, 1, step=40, values={"loss (backward)": None})
    (finding,) = told.analyse(3)["findings"]

    assert (finding["kind"], finding["severity"], finding["rank"]) == ("NOT FINITE", "critical", 1)
    assert finding["headline"].startswith("The loss is NaN since step 40")
    assert told.analyse(5)["findings"][0]["since_s"] == 2.0

    told.feed("scalars", 6, 1, step=60, values={"loss (backward)": 0.4})
    assert told.analyse(7)["findings"] == []


# -- what cannot be told from forward --------------------------------------------------------------


def record(**columns: list[int]) -> dict[str, Any]:
    size = len(next(iter(columns.values())))
    phases = {f"{phase}_us": [100] * size for phase in PHASES}
    hosts = {f"{phase}_host_us": [200] * size for phase in PHASES}
    return {"step": list(range(size)), "host_us": [700] * size, **phases, **hosts, **columns}


def test_unknown_time_belongs_to_the_work_before_backward() -> None:
    first, second = parse_steps(record(unknown_us=[0, 40], unknown_host_us=[0, 50]))

    assert (sum(first.local_us), first.untold_us) == (600, 0)
    assert (sum(second.local_us), second.untold_us) == (640, 40)
    assert second.local_host_us is not None
    assert sum(us or 0 for us in second.local_host_us) == 1250


def test_where_much_of_the_step_is_unknown_nothing_is_claimed() -> None:
    made = window({"forward": 80, "backward": 20, "untold_us": 70}, cuda=False)

    verdict = judge(made, Facts(), None, DEFAULT).verdict

    assert verdict.kind == "UNDECIDED"
    assert verdict.headline.startswith("70 % of each step is unknown: another thread")


def test_a_bottleneck_that_is_larger_is_told_all_the_same() -> None:
    made = window({"data": 70, "forward": 20, "backward": 10, "untold_us": 15}, cuda=False)

    assert judge(made, Facts(), None, DEFAULT).verdict.kind == "DATA"


# -- ranks that train alone ------------------------------------------------------------------------


def test_ranks_that_train_alone_are_no_stragglers() -> None:
    slow = {"forward": 30, "backward": 90}
    made = window({"forward": 30, "backward": 30}, slow, cuda=False)

    together = judge(made, Facts(), None, DEFAULT)
    alone = judge(made, Facts(alone=True), None, DEFAULT)

    assert (together.verdict.kind, together.verdict.rank) == ("STRAGGLER", 1)
    assert alone.verdict.kind == "COMPUTE-BOUND"
    assert not {c.kind for c in alone.ranked} & {"STRAGGLER", "COMM", "LAUNCH"}


@pytest.mark.parametrize(
    ("counts", "alone"), [((0, 0), True), ((0, 7), False), ((0, None), False), ((0,), False)]
)
def test_that_they_do_is_known_once_all_have_told(
    counts: tuple[int | None, ...], alone: bool
) -> None:
    states = {rank: RankState(rank, 0, "", {}) for rank in range(2)}
    for rank, count in enumerate(counts):
        states[rank].take_facts({"subject": "collectives", "count": count})
    steps = [account([row(step), row(step)]) for step in (20, 21)]

    facts = gather(states, {}, steps, Learnt({}, Paces()), 0, DEFAULT)

    assert facts.alone is alone
    # and where there is DDP, it says so by itself
    states[0].take_facts({"subject": "ddp", "parameters": 3})
    assert not gather(states, {}, steps, Learnt({}, Paces()), 0, DEFAULT).alone
