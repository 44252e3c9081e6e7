"""The workloads train: real processes, real gloo, tiny sizes."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import torchtop
import torchtop_workloads
from torchtop_workloads.registry import WORKLOADS, find

pytest.importorskip("torch")
pytest.importorskip("torchvision")

PACKAGE = Path(torchtop_workloads.__path__[0])
ROOTS = [str(PACKAGE.parent), str(Path(torchtop.__path__[0]).parent)]
STEPS = 12
TINY = {
    "resnet50-cifar10": ["--batch=16", "--synthetic-size=16", "--workers=1", "--lr=0.002"],
    "compute-heavy": ["--batch=4", "--channels=8", "--depth=2", "--image-size=8"],
    "slow-loader": ["--batch=8", "--synthetic-size=64", "--workers=1", "--item-ms=0.1"],
    "comm-heavy": ["--batch=4", "--width=64", "--depth=2"],
    "straggler": ["--batch=4", "--channels=8", "--image-size=8", "--delay-ms=1"],
    "tiny-kernels": ["--batch=4", "--width=8", "--depth=3"],
    "sync-every-step": ["--batch=4", "--ops=3", "--width=8", "--read-every=5"],
    "resnet50-imagenet": ["--batch=4", "--data=memory", "--image-size=32"],
    "bert-base": ["--batch=4", "--layers=1", "--width=16", "--vocab=64", "--seq-len=8"],
    "gpt2-small": ["--batch=4", "--layers=1", "--width=16", "--vocab=64", "--seq-len=8"],
}
Ranks = list[dict[str, Any]]


def environment(cache: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "TORCHTOP_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join(ROOTS),
        **more,
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def runs(cache: Path) -> dict[str, Ranks]:
    """Every workload on two ranks, and some variations."""
    plan = {
        workload.name: (workload.name, [f"--steps={STEPS}", *TINY[workload.name]])
        for workload in WORKLOADS
    }
    again = plan["resnet50-cifar10"]
    plan["again"] = again
    plan["memory"] = (again[0], ["--steps=2", *TINY[again[0]], "--data=memory", "--channels-last"])
    plan["uneven"] = (again[0], ["--batch=15"])
    plan["too few"] = (again[0], ["--batch=32", "--synthetic-size=31"])
    jpeg = ["--batch=4", "--steps=2", "--workers=1", "--image-size=32", "--synthetic-size=10"]
    plan["jpeg"] = ("resnet50-imagenet", jpeg)
    plan["timed"] = ("gpt2-small", ["--seconds=0.2", "--warmup=4", *TINY["gpt2-small"]])
    plan["scaled"] = ("bert-base", ["--steps=2", "--scale-lr", *TINY["bert-base"]])
    for parallel in ("dp", "single"):
        plan[parallel] = (again[0], ["--steps=2", f"--parallel={parallel}", *TINY[again[0]]])
    for phase in ("data", "forward", "backward", "host"):
        plan[phase] = ("straggler", ["--steps=2", *TINY["straggler"], f"--slow-phase={phase}"])
    items = [
        {"module": find(name).module, "argv": argv, "ranks": 1 + (key not in ("dp", "single"))}
        for key, (name, argv) in plan.items()
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("forked_ranks.py")), json.dumps(items)],
        env=environment(cache),
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return dict(zip(plan, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", [workload.name for workload in WORKLOADS])
def test_a_workload_runs_its_steps_and_ends_well(runs: dict[str, Ranks], name: str) -> None:
    for rank in runs[name]:
        assert rank["status"] == 0, rank["output"]
        assert len(rank["losses"]) == STEPS
        assert all(math.isfinite(loss) for loss in rank["losses"])
        facts = rank["facts"]
        assert (facts["total_steps"], facts["synthetic_data"]) == (STEPS, True)
        assert facts["compile_available"] is True
        assert facts["training_started_ns"] > 0


@pytest.mark.parametrize("name", [workload.name for workload in WORKLOADS])
def test_all_ranks_apply_the_same_gradients_to_different_data(
    runs: dict[str, Ranks], name: str
) -> None:
    first, second = runs[name]
    assert first["gradients"] == second["gradients"]
    assert first["losses"] != second["losses"]


def test_the_loss_falls_on_made_up_images(runs: dict[str, Ranks]) -> None:
    # Each step is an epoch over the same few images, so that even twelve can be learnt from.
    first, second = (rank["losses"] for rank in runs["resnet50-cifar10"])
    losses = [sum(pair) / 2 for pair in zip(first, second, strict=True)]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])


def test_the_same_seed_gives_the_same_losses(runs: dict[str, Ranks]) -> None:
    once, again = runs["resnet50-cifar10"], runs["again"]
    assert [rank["losses"] for rank in once] == [rank["losses"] for rank in again]


def test_rank_0_alone_says_what_it_trains_on_and_how_it_ends(runs: dict[str, Ranks]) -> None:
    first, second = runs["resnet50-cifar10"]
    assert "resnet50-cifar10: 2 x CPU, batch 16 in all\n" in first["output"]
    assert "data: synthetic CIFAR-10 files in " in first["output"]
    assert f"step {STEPS}/{STEPS}  loss " in first["output"]
    assert f"done: {STEPS} steps in " in first["output"]
    assert second["output"] == ""


def test_batches_can_be_kept_in_memory(runs: dict[str, Ranks]) -> None:
    assert [rank["status"] for rank in runs["memory"]] == [0, 0]
    assert [len(rank["losses"]) for rank in runs["memory"]] == [2, 2]


def test_jpeg_files_are_made_once_and_decoded_in_workers(
    runs: dict[str, Ranks], cache: Path
) -> None:
    assert [rank["status"] for rank in runs["jpeg"]] == [0, 0], runs["jpeg"][0]["output"]
    assert "data: synthetic JPEG files in " in runs["jpeg"][0]["output"]
    folder = cache / "torchtop" / "data" / "synthetic-jpeg-10"
    files = list(folder.glob("train/*/*.jpg"))
    assert len(files) == 10
    assert all(file.read_bytes()[:2] == b"\xff\xd8" for file in files)


def test_a_number_of_seconds_becomes_the_same_number_of_steps_on_all_ranks(
    runs: dict[str, Ranks],
) -> None:
    first, second = runs["timed"]
    assert first["status"] == second["status"] == 0, first["output"]
    assert first["facts"]["total_steps"] == second["facts"]["total_steps"] >= 14
    assert len(first["losses"]) == len(second["losses"]) == first["facts"]["total_steps"]


def test_the_learning_rate_can_follow_the_batch(runs: dict[str, Ranks]) -> None:
    # A 64th of the usual batch of 256: the first losses are alike, the second step hardly moved.
    usual, scaled = runs["bert-base"][0]["losses"], runs["scaled"][0]["losses"]
    assert scaled[0] == usual[0]
    assert scaled[1] != usual[1]


@pytest.mark.parametrize("parallel", ["dp", "single"])
def test_one_process_takes_the_whole_batch(runs: dict[str, Ranks], parallel: str) -> None:
    (rank,) = runs[parallel]
    assert rank["status"] == 0, rank["output"]
    assert len(rank["losses"]) == 2
    assert "batch 16 in all" in rank["output"]


def test_a_batch_that_cannot_be_split_ends_with_one_line(runs: dict[str, Ranks]) -> None:
    for rank in runs["uneven"]:
        assert rank["status"] == 2
        assert rank["output"] == (
            "resnet50-cifar10: batch 15 cannot be split evenly over 2 ranks: use a multiple of 2\n"
        )


def test_a_data_set_smaller_than_a_batch_ends_with_one_line(runs: dict[str, Ranks]) -> None:
    for rank in runs["too few"]:
        assert rank["status"] == 1
        assert "smaller than one batch of 32: lower batch\n" in rank["output"]
        assert "Traceback" not in rank["output"]


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "host"])
def test_a_straggler_can_be_slow_in_any_phase(runs: dict[str, Ranks], phase: str) -> None:
    # The extra work changes the time of a step and not what it computes.
    for rank, usual in zip(runs[phase], runs["straggler"], strict=True):
        assert rank["status"] == 0, rank["output"]
        assert rank["losses"] == usual["losses"][:2]


def test_a_staged_copy_runs_by_path_without_torchtop(tmp_path: Path, cache: Path) -> None:
    # given a copy of the package in a folder that Python does not know
    shutil.copytree(PACKAGE, tmp_path / "torchtop_workloads")
    script = tmp_path / "torchtop_workloads" / "compute_heavy.py"
    # when its script is run as a file, in an interpreter that cannot import torchtop
    code = "import runpy, sys; sys.modules['torchtop'] = None; sys.argv = sys.argv[1:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(script), "--steps=2", *TINY["compute-heavy"]],
        env=environment(cache, PYTHONPATH=""),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # then
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("s\n")
    assert "done: 2 steps" in done.stdout


@pytest.fixture
def torchrun(cache: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a workload under torchrun, and ends what is left of it."""
    tag = f"TORCHTOP_TEST={tmp_path}"
    started = []

    def start(module: str, *argv: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
        command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", module, *argv]
        started.append(
            subprocess.Popen(
                command,
                env=environment(cache, TORCHTOP_TEST=str(tmp_path)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for pid in tagged(tag):
        os.kill(pid, signal.SIGKILL)
    for process in started:
        process.communicate(timeout=30)


def tagged(tag: str) -> list[int]:
    """The living processes with that in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if tag.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def test_sigterm_to_torchrun_leaves_no_process(
    torchrun: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    # given two ranks with a loader worker each, in the middle of an endless training
    tag = f"TORCHTOP_TEST={tmp_path}"
    process = torchrun(find("slow-loader").module, *TINY["slow-loader"], "--steps=1000000")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 50/"):
            break
    assert len(tagged(tag)) >= 5
    # when
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    # then
    deadline = time.monotonic() + 30
    while tagged(tag) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tagged(tag) == []
