"""Each way to train that torchtop claims to know: the real libraries, bare and with the probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from frameworks import pairs
from frameworks.pairs import Pair
from torchtop.session.records import PHASE_COLUMNS

pytest.importorskip("torch")

SLEPT_US = 40_000
"""As the scripts do: `toy.SLEEP_S`."""


@dataclass(frozen=True)
class Row:
    """A way to train, and what must be seen of it."""

    words: str
    steps: int
    ranks: int = 1
    needs: str = "torch"
    train: tuple[str, ...] = ("TrainData",)
    """The data sets of the loaders that training draws from."""
    evaluation: tuple[str, ...] = ()
    samples: int | None = 4
    """Of each step and rank."""
    slept: Mapping[int, int] = field(default_factory=dict)
    """Steps before which so many times `SLEPT_US` went to evaluation, checkpoint and log."""
    first: int = 1
    """The first step that is told: step 0 begins before it can be seen."""
    phases: tuple[str, ...] = ("backward", "optimizer")
    """Those that every step has."""
    elsewhere: bool = False
    """Whether another thread fetches the batches."""

    def __str__(self) -> str:
        return self.words.replace(".py", "").split(" --")[0].replace(" ", "-")


ROWS = (
    Row("loops.py plain", 24, evaluation=("EvalData",), slept={8: 5, 16: 5}),
    Row("loops.py saves_first", 16, slept={4: 1, 9: 1, 14: 1}),
    Row("loops.py memory", 24, train=(), samples=None),
    Row("loops.py accumulation", 18, samples=16),
    Row("loops.py amp", 24),
    Row("loops.py scaler", 24),
    Row("loops.py compiled", 24),
    Row("loops.py compiled_step", 24, first=8, phases=("backward",)),
    Row("loops.py gan", 24),
    Row(
        "loops.py loaders",
        24,
        train=("TrainData", "TrainData"),
        evaluation=("EvalData", "EvalData"),
        samples=12,
        slept={4: 1, 8: 1, 12: 1, 16: 1, 20: 1},
    ),
    Row("loops.py iterable", 24, train=("Stream",)),
    Row("loops.py persistent", 24, evaluation=("EvalData",), slept={8: 1, 16: 1}),
    Row(
        "loops.py prefetcher",
        24,
        evaluation=("EvalData",),
        slept={8: 1, 16: 1},
        elsewhere=True,
    ),
    Row("loops.py lbfgs", 16),
    Row("loops.py schedulefree", 24, needs="schedulefree", evaluation=("EvalData",)),
    Row("loops.py torchvision", 24, needs="torchvision", train=("FakeData",)),
    Row("loops.py webdataset", 24, needs="webdataset", train=("WebDataset",)),
    Row("parallel.py ddp", 24, 2, evaluation=("EvalData",), slept={8: 1, 16: 1}),
    Row("parallel.py no_sync", 20, 2, samples=16),
    Row("parallel.py sync_each", 20, 2, samples=16),
    Row("parallel.py gan", 24, 2),
    Row("parallel.py compiled", 24, 2, samples=None),
    Row("parallel.py fsdp2", 24, 2),
    Row("parallel.py zero", 24, 2),
    Row(
        "hf_trainer.py --device cpu --sleep 0.04",
        24,
        2,
        needs="transformers",
        train=("RandomTokens",),
        evaluation=("EvalTokens",),
        slept={8: 3, 16: 3},
    ),
    Row(
        "accelerate_loop.py --device cpu --sleep 0.04",
        24,
        2,
        needs="accelerate",
        train=("Images",),
        evaluation=("EvalImages",),
        samples=8,
        slept={8: 1, 16: 1},
    ),
    Row(
        "lightning_fit.py --device cpu --sleep 0.04",
        24,
        2,
        needs="lightning",
        train=("Rows",),
        evaluation=("EvalRows",),
        samples=8,
        slept={8: 1, 16: 1},
    ),
    Row("compiled_loop.py --device cpu --backend aot_eager", 24, 2, train=("Tokens",)),
)


@dataclass(frozen=True)
class Ran:
    """A row and what came of it."""

    row: Row
    pair: Pair


@pytest.fixture(scope="module", params=ROWS, ids=str)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    row: Row = request.param
    if find_spec(row.needs) is None:
        pytest.skip(f"{row.needs} is not installed")
    return Ran(row, pairs.run(row.words.split(), row.ranks, tmp_path_factory.mktemp(str(row))))


def each_rank(ran: Ran) -> range:
    return range(ran.row.ranks)


def test_output_and_weights_are_those_of_the_bare_run(ran: Ran) -> None:
    assert ran.pair.plain.code == 0, ran.pair.plain.errors
    assert ran.pair.probed.code == 0, ran.pair.probed.errors
    assert ran.pair.probed.outputs == ran.pair.plain.outputs
    assert len(ran.pair.plain.outputs) == ran.row.ranks
    assert all("weights" in output for output in ran.pair.plain.outputs)


def test_every_step_is_counted_once(ran: Ran) -> None:
    for rank in each_rank(ran):
        totals = ran.pair.stage.rank_records(rank, "totals")

        assert totals[0]["from_step"] == ran.row.first
        assert totals[-1]["to_step"] == ran.row.steps
        assert all(a["to_step"] == b["from_step"] for a, b in pairwise(totals))
        assert sorted(ran.pair.rows(rank)) == list(range(ran.row.first, ran.row.steps))


def test_phases_add_up_to_the_hosts_own_time(ran: Ran) -> None:
    for rank in each_rank(ran):
        rows = ran.pair.rows(rank)

        assert rows
        for step, row in rows.items():
            phases = sum(row[name] for name in PHASE_COLUMNS) + row.get("unknown_us", 0)
            assert phases == row["host_us"]
            assert all(row[f"{name}_us"] > 0 for name in ran.row.phases)
            # Where a batch comes from is known, or it is said that it is not.
            awaited = "forward_us" if ran.row.samples is None else "data_us"
            assert row["unknown_us" if ran.row.elsewhere else awaited] > 0 or step in ran.row.slept


def test_the_loaders_are_named_and_told_apart(ran: Ran) -> None:
    def names(loaders: list[dict[str, Any]], train: bool) -> list[str]:
        told = {(f["loader"], f["dataset"]) for f in loaders if f["train"] is train}
        return [name for _, name in sorted(told)]

    for rank in each_rank(ran):
        loaders = ran.pair.stage.facts(rank, "loader")

        assert names(loaders, train=True) == list(ran.row.train)
        assert names(loaders, train=False) == list(ran.row.evaluation)


def test_samples_are_those_of_the_steps(ran: Ran) -> None:
    """A loader that fetches one batch ahead has it in the step before, and none too many."""
    for rank in each_rank(ran):
        samples = [row["samples"] for row in ran.pair.rows(rank).values()]

        if ran.row.samples is None:
            assert set(samples) == {None}
        else:
            assert median(samples) == ran.row.samples
            assert sum(samples[7:15]) == 8 * ran.row.samples  # steps 8 to 15, where epochs begin


def test_evaluation_checkpoint_and_log_are_no_part_of_data_or_forward(ran: Ran) -> None:
    for rank in each_rank(ran):
        rows = ran.pair.rows(rank)

        for step, times in ran.row.slept.items():
            assert rows[step]["other_us"] >= times * SLEPT_US, rows[step]


def test_the_probe_never_gave_up(ran: Ran) -> None:
    assert ran.pair.stage.process("probe") == []
    for rank in each_rank(ran):
        assert {record["disabled"] for record in ran.pair.stage.rank_records(rank, "probe")} == {
            None
        }


def test_the_readme_has_each_way_to_train_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = text.partition("| training | what is seen |")[2].partition("\n\n")[0]
    cells = [line.rsplit("|", 2)[1] for line in table.splitlines()[2:]]

    named = [name for cell in cells for name in cell.replace("`", "").split()]
    assert sorted(named) == sorted(map(str, ROWS))
