"""What only GPUs can show: skipped where there are none, or too few."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.command import environment, torchtop
from torchtop.launch.preflight import count_gpus
from torchtop_workloads.registry import find

pytestmark = pytest.mark.skipif(count_gpus() < 1, reason="needs a GPU")
two_gpus = pytest.mark.skipif(count_gpus() < 2, reason="needs two GPUs")

SMALL = {
    "resnet50-imagenet": ["--data=memory", "--batch-per-gpu=8"],
    "bert-base": ["--layers=2", "--batch-per-gpu=8"],
    "gpt2-small": ["--layers=2", "--seq-len=128", "--batch-per-gpu=4"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def sweep(home: Path, *words: str) -> dict[str, Any]:
    done = torchtop("sweep", *words, "--json", home=home, cwd=home, timeout_s=580)
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads(done.stdout)
    return table


def by_label(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["label"]: cell for cell in table["cells"]}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("options", ["", "--amp", "--amp --compile", "--parallel=dp --amp"])
def test_a_workload_trains_in_every_way(name: str, options: str, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", find(name).module, "--steps=12", *SMALL[name], *options.split()],
        env={**environment(home), "XDG_CACHE_HOME": str(home / "cache"), "TORCHTOP_DEVICE": "cuda"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done: 12 steps" in done.stdout


def test_one_gpu_is_measured_with_its_energy_and_memory(home: Path) -> None:
    table = sweep(home, "bert-base", "--gpus", "1", "--repeats", "1", "-o", "amp=off,on")

    off, on = table["cells"]
    for cell in (off, on):
        assert cell["energy_j_per_1000_samples"] > 0
        assert cell["memory_peak_bytes"] > 10**8
        assert cell["versions"]["cuda"]
        assert cell["versions"]["cudnn"]
        assert cell["tokens_per_s"]["median"] == pytest.approx(
            128 * cell["samples_per_s"]["median"]
        )
    assert on["relative"] > 1


@two_gpus
def test_two_gpus_on_the_textbook_script_are_accounted_for(home: Path) -> None:
    words = ["resnet50-cifar10", "--gpus", "1,2", "--repeats", os.environ.get("REPEATS", "2")]
    cells = by_label(sweep(home, *words))

    two = cells["2 GPUs"]
    points = {part["key"]: part["points"] for part in two["loss"]["parts"]}
    assert two["loss"]["reference"] == cells["1 GPU, batch_per_gpu=128"]["id"]
    assert sum(points.values()) == pytest.approx(two["loss"]["lost_points"], abs=2)
    assert two["loss"]["lost_points"] == pytest.approx(100 * (1 - two["efficiency"]), abs=0.1)
    assert abs(points["other"]) <= 5, points


@two_gpus
def test_dataparallel_stands_beside_ddp(home: Path) -> None:
    words = ["bert-base", "--gpus", "2", "-o", "parallel=ddp,dp", "--repeats", "1", "--steps", "50"]
    ddp, dp = sweep(home, *words)["cells"]

    assert (ddp["nproc"], dp["nproc"], dp["gpus"]) == (2, 1, 2)
    assert ddp["batch"] == dp["batch"] == 64
    assert dp["energy_j_per_1000_samples"] > 0
