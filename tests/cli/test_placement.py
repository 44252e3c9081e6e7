"""Where a workload goes, on machines that are made up of facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchtop.commands.errors import UsageError
from torchtop.commands.placement import Wish, place
from torchtop.devices.model import GpuFact, GpuInventory
from torchtop.launch.interpreter import Interpreter

GPUS = tuple(GpuFact(index=i, uuid=f"GPU-{i}aaa", name="NVIDIA H200") for i in range(4))
FOUR = GpuInventory(driver="580.1", gpus=GPUS)
NONE = GpuInventory(error="no NVIDIA driver on this machine")


@pytest.fixture(autouse=True)
def _no_restriction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def cuda_build(tmp_path: Path) -> Interpreter:
    return _build(tmp_path, "cuda = '13.0'")


def _build(folder: Path, line: str) -> Interpreter:
    (folder / "version.py").write_text(f"__version__ = '2.11.0'\n{line}\n")
    return Interpreter("/usr/bin/python3", "3.12.3", folder)


def test_all_gpus_when_nothing_is_said(cuda_build: Interpreter) -> None:
    placed = place(Wish(), cuda_build, FOUR)

    assert (placed.device, placed.nproc) == ("cuda", 4)
    assert placed.gpu_uuids == ("GPU-0aaa", "GPU-1aaa", "GPU-2aaa", "GPU-3aaa")


def test_the_cpu_when_there_is_no_gpu(cuda_build: Interpreter) -> None:
    placed = place(Wish(nproc=3), cuda_build, NONE)

    assert (placed.device, placed.nproc, placed.gpu_uuids) == ("cpu", 3, ())


def test_the_cpu_and_a_word_about_it_when_pytorch_has_no_cuda(tmp_path: Path) -> None:
    placed = place(Wish(), _build(tmp_path, "cuda: Optional[str] = None"), FOUR)

    assert placed.device == "cpu"
    assert "CPU build" in (placed.note or "")


@pytest.mark.parametrize(
    ("wish", "uuids"),
    [
        (Wish(gpus=2), ("GPU-0aaa", "GPU-1aaa")),
        (Wish(gpu_ids=(3, 1)), ("GPU-3aaa", "GPU-1aaa")),
        (Wish(nproc=1), ("GPU-0aaa",)),
    ],
)
def test_some_gpus(wish: Wish, uuids: tuple[str, ...], cuda_build: Interpreter) -> None:
    assert place(wish, cuda_build, FOUR).gpu_uuids == uuids


def test_ranks_share_gpus_only_where_that_is_allowed(
    cuda_build: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHTOP_SHARE_GPUS", "1")

    shared, own = place(Wish(nproc=6), cuda_build, FOUR), place(Wish(), cuda_build, FOUR)

    assert (shared.nproc, len(shared.gpu_uuids)) == (6, 4)
    assert own.nproc == 4
    assert place(Wish(nproc=1), cuda_build, FOUR).gpu_uuids == ("GPU-0aaa",)


@pytest.mark.parametrize(
    ("restriction", "uuids"),
    [
        ("2,0", ("GPU-2aaa", "GPU-0aaa")),
        ("GPU-3", ("GPU-3aaa",)),
        ("1,9,2", ("GPU-1aaa",)),
    ],
)
def test_an_inherited_restriction_holds(
    restriction: str,
    uuids: tuple[str, ...],
    cuda_build: Interpreter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", restriction)

    assert place(Wish(), cuda_build, FOUR).gpu_uuids == uuids


@pytest.mark.parametrize(
    ("wish", "inventory", "told"),
    [
        (Wish(gpus=9), FOUR, "4 GPUs"),
        (Wish(gpus=0), FOUR, "at least 1"),
        (Wish(nproc=0), FOUR, "at least 1"),
        (Wish(nproc=5), FOUR, "one GPU"),
        (Wish(gpus=1), NONE, "no NVIDIA driver"),
        (Wish(device="cuda"), NONE, "--device cpu"),
        (Wish(gpu_ids=(7,)), FOUR, "no GPU 7"),
        (Wish(gpu_ids=(1, 1)), FOUR, "once"),
        (Wish(gpus=1, gpu_ids=(1,)), FOUR, "not both"),
        (Wish(device="cpu", gpus=1), FOUR, "--nproc"),
    ],
)
def test_what_cannot_be_done_is_told(
    wish: Wish, inventory: GpuInventory, told: str, cuda_build: Interpreter
) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        place(wish, cuda_build, inventory)

    assert "\n" not in str(refused.value)
