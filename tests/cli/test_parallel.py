"""How many processes a workload's way of parallelism is started in."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.cli import parse
from torchtop.commands import placement
from torchtop.commands.errors import UsageError
from torchtop.commands.request import build_spec
from torchtop.devices.model import GpuFact, GpuInventory
from torchtop.launch.interpreter import Interpreter
from torchtop.launch.spec import LaunchSpec

GPUS = tuple(GpuFact(index=i, uuid=f"GPU-{i}", name="NVIDIA H200") for i in range(4))


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs, and a PyTorch that can use them."""
    (tmp_path / "version.py").write_text("__version__ = '2.11.0'\ncuda = '13.0'\n")
    python = Interpreter("/usr/bin/python3", "3.12.3", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(placement, "query_gpus", lambda: GpuInventory(gpus=GPUS))
    monkeypatch.setattr("torchtop.commands.request.inspect", lambda _: python)


def launch(tmp_path: Path, *words: str) -> LaunchSpec:
    return build_spec(parse(["run", *words]), tmp_path)


@pytest.mark.parametrize(
    ("words", "nproc", "gpus"),
    [
        ("--gpus 2", 2, ("GPU-0", "GPU-1")),
        ("--gpus 2 -o parallel=ddp", 2, ("GPU-0", "GPU-1")),
        ("--gpus 2 -o parallel=dp", 1, ("GPU-0", "GPU-1")),
        ("-o parallel=dp", 1, ("GPU-0", "GPU-1", "GPU-2", "GPU-3")),
        ("--gpus 2 -o parallel=single", 1, ("GPU-0",)),
        ("-o parallel=single", 1, ("GPU-0",)),
        ("--nproc 1 -o parallel=dp", 1, ("GPU-0",)),
        ("--device cpu -o parallel=dp", 1, ()),
    ],
)
def test_one_process_for_all_gpus_or_one_for_each(
    words: str, nproc: int, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    spec = launch(tmp_path, *words.split(), "resnet50-cifar10")

    assert (spec.nproc, spec.gpu_uuids) == (nproc, gpus)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--nproc 2 -o parallel=dp", "parallel=dp runs in one process, not 2"),
        ("--gpus 3", "batch 256 cannot be split evenly over 3 ranks"),
        ("--gpus 3 -o parallel=dp", "batch 256 cannot be split evenly over 3 GPUs"),
        ("--gpus 2 -o batch=8 -o batch_per_gpu=4", "batch and batch_per_gpu say the same"),
        ("-o data_dir=nowhere", "data_dir nowhere is not a folder"),
        ("-o parallel=dp -o compile=on", "parallel=dp cannot be compiled"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(words: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        launch(tmp_path, *words.split(), "resnet50-cifar10")

    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
