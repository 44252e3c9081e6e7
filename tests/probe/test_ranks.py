"""Two real ranks under torchrun, with the probe and without."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from probe.staged import Stage, clean_environment
from torchtop.session.records import PHASE_COLUMNS

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("scenarios.py")

# Batches that each way of training makes a rank, in order; the first step of all is never seen.
PLAIN, REENTRANT, ACCUMULATE, STATIC, UNUSED = 16, 8, 2, 8, 8
DELAY_US = 40_000


@dataclass(frozen=True)
class Job:
    """A torchrun job that has ended."""

    code: int
    told: str
    outputs: list[str]
    errors: list[str]


def start(words: list[str], cwd: Path, **env: str) -> subprocess.Popen[str]:
    flags = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    flags += ["--redirects=3", f"--log-dir={cwd / 'logs'}"]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *flags, *words],
        cwd=cwd,
        env=clean_environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str], cwd: Path) -> Job:
    try:
        told, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.terminate()
        told, _ = process.communicate()
    outputs, errors = (
        [file.read_text() for file in sorted((cwd / "logs").glob(f"*/*/*/{name}.log"))]
        for name in ("stdout", "stderr")
    )
    return Job(process.returncode, told, outputs, errors)


@dataclass(frozen=True)
class Pair:
    """The same script with the probe and without."""

    stage: Stage
    plain: Job
    probed: Job


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Both at once: a torchrun takes its time to start."""
    stage = Stage.make(tmp_path_factory.mktemp("session"))
    folders = [tmp_path_factory.mktemp(name) for name in ("plain", "probed")]
    fallback = str(stage.root / "stage" / "fallback")
    jobs = [
        start([str(SCRIPT), "--lr", "1"], folders[0], PYTHONPATH=fallback),
        # No torchtop on the path: the interpreter has torch, and the stage has the rest.
        start([stage.rank_py, str(SCRIPT), "--lr", "1"], folders[1]),
    ]
    plain, probed = (end(job, cwd) for job, cwd in zip(jobs, folders, strict=True))
    assert plain.code == 0, plain
    return Pair(stage, plain, probed)


def test_weights_losses_and_output_are_those_of_the_bare_run(pair: Pair) -> None:
    assert pair.probed.code == 0, pair.probed
    assert pair.probed.outputs == pair.plain.outputs
    assert [len(output.splitlines()) for output in pair.plain.outputs] == [7, 7]


def test_nothing_is_said_on_standard_error(pair: Pair) -> None:
    assert [error.count("torchtop") for error in pair.probed.errors] == [0, 0]
    assert [len(error.splitlines()) for error in pair.probed.errors] == [
        len(error.splitlines()) for error in pair.plain.errors
    ]


@pytest.mark.parametrize("rank", [0, 1])
def test_every_step_is_counted(pair: Pair, rank: int) -> None:
    last = PLAIN + REENTRANT + ACCUMULATE + STATIC + UNUSED - 1

    totals = pair.stage.rank_records(rank, "totals")

    assert totals[0]["from_step"] == 1
    assert totals[-1]["to_step"] == last + 1
    assert sum(total["steps"] for total in totals) == last
    assert all(a["to_step"] == b["from_step"] for a, b in pairwise(totals))
    steps = [row["step"] for row in pair.stage.rows(rank)]
    assert steps == sorted(set(steps))
    assert set(steps) <= set(range(1, last + 1))


@pytest.mark.parametrize("rank", [0, 1])
def test_phases_add_up_to_the_hosts_own_time(pair: Pair, rank: int) -> None:
    rows = pair.stage.rows(rank)

    assert len(rows) > 20
    for row in rows:
        assert sum(row[name] for name in PHASE_COLUMNS) == row["host_us"]
    for total in pair.stage.rank_records(rank, "totals"):
        assert sum(total[name] for name in PHASE_COLUMNS) == total["host_us"]


@pytest.mark.parametrize("rank", [0, 1])
def test_samples_are_those_of_the_step(pair: Pair, rank: int) -> None:
    expected = dict.fromkeys(range(1, PLAIN + REENTRANT), 4)
    for step in range(PLAIN + REENTRANT, PLAIN + REENTRANT + ACCUMULATE):
        expected[step] = 16

    rows = pair.stage.rows(rank)

    assert {row["step"]: row["samples"] for row in rows} == {
        row["step"]: expected.get(row["step"], 4) for row in rows
    }
    assert {row["tokens"] for row in rows} == {None}


@pytest.mark.parametrize("rank", [0, 1])
def test_loaders_are_told_apart(pair: Pair, rank: int) -> None:
    first, second, *_ = pair.stage.facts(rank, "loader")

    assert (first["train"], first["workers"], first["batch_size"]) == (True, 2, 4)
    assert (first["batches"], first["dataset"]) == (8, "TensorDataset")
    assert first["first_batch"]["samples"] == 4
    assert len(first["worker_pids"]) == 2
    assert (second["train"], second["loader"]) == (False, 1)
    # One for each epoch of each loader: two ways had two epochs... of two loaders.
    assert len(pair.stage.facts(rank, "loader")) <= 2 * (2 + 5)


@pytest.mark.parametrize("rank", [0, 1])
def test_ddp_tells_its_settings_and_its_buckets(pair: Pair, rank: int) -> None:
    made = [fact for fact in pair.stage.facts(rank, "ddp") if fact["buckets"] is None]
    built = [fact for fact in pair.stage.facts(rank, "ddp") if fact["buckets"] is not None]

    parameters = 8 * 32 + 32 + 2 * (32 * 32 + 32) + 32 * 3 + 3
    assert made[0]["parameters"] == parameters
    assert made[0]["gradient_bytes"] == 4 * parameters
    assert made[0]["bucket_cap_bytes"] == int(0.004 * 2**20)
    assert [fact["static_graph"] for fact in made] == [False, False, False, True, False, False]
    assert [fact["find_unused_parameters"] for fact in made][4] is True
    assert sum(built[0]["buckets"]) == 4 * parameters
    assert len(built[0]["buckets"]) > 1
    assert len(built) >= 4  # one each of all ways with so many steps
    assert {fact["comm_hook"] for fact in built} == {None}
    assert {fact["broadcast_buffers"] for fact in built} == {True}


def test_headers_tell_the_ranks(pair: Pair) -> None:
    for rank in (0, 1):
        (header,) = pair.stage.rank_records(rank, "header")
        assert (header["rank"], header["local_rank"], header["world_size"]) == (rank, rank, 2)
        assert (header["backend"], header["cuda"], header["nccl"]) == ("gloo", None, None)
        assert header["device"]["type"] == "cpu"


def test_a_rank_that_waits_for_another_shows_it_although_checkpointing_is_reentrant(
    pair: Pair,
) -> None:
    """Rank 1 sleeps before its forward; rank 0 waits within its backward."""
    window = range(PLAIN + 1, PLAIN + REENTRANT - 1)

    def mean(rank: int, column: str) -> float:
        values = [row[column] for row in pair.stage.rows(rank) if row["step"] in window]
        assert len(values) >= 3
        return sum(values) / len(values)

    assert mean(0, "exposed_comm_us") > 0.7 * DELAY_US
    assert mean(1, "exposed_comm_us") < 0.5 * DELAY_US
    assert mean(1, "forward_us") > DELAY_US
    assert mean(0, "backward_us") < 0.5 * DELAY_US


@pytest.mark.parametrize("rank", [0, 1])
def test_scalars_are_told(pair: Pair, rank: int) -> None:
    told = pair.stage.rank_records(rank, "scalars")

    assert {name for record in told for name in record["values"]} == {
        "loss",
        "way",
        "loss (backward)",  # of the first step, before the script has told its own
    }
    assert told[0]["step"] == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_probe_that_broke_says_why_and_left_the_training_alone(pair: Pair, rank: int) -> None:
    why = "ArithmeticError: broken by the script"

    assert pair.stage.rank_records(rank, "probe")[-1]["disabled"] == why
    assert pair.stage.rank_records(rank, "beat")[-1]["marker"] is None
    assert {record["disabled"] for record in pair.stage.process("probe")} == {why}


def test_rank_py_tells_how_the_ranks_ended(pair: Pair) -> None:
    assert sorted(header["rank"] for header in pair.stage.process("header")) == [0, 1]
    assert [record["code"] for record in pair.stage.process("exit")] == [0, 0]
    assert pair.stage.process("exception") == []
    assert len(pair.stage.process("torch")) == 2


def test_only_the_ranks_wrote(pair: Pair) -> None:
    """Two ranks, with loader workers and a fork each: two files a rank."""
    names = sorted(file.name for file in (pair.stage.root / "ranks").glob("*.jsonl"))

    assert len(names) == 4
