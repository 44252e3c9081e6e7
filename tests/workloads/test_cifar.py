"""CIFAR-10's files, made up and read back by torchvision."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torchtop_workloads import cifar, common  # noqa: E402


def job(folder: Path, size: int = 100, batch: int = 10) -> common.Job:
    options = SimpleNamespace(
        data_dir=str(folder), synthetic_size=size, batch=batch, channels_last=False
    )
    return common.Job(0, 0, 1, torch.device("cpu"), batch, options)


def make(folder: Path) -> None:
    raise SystemExit(len(cifar.train_set(job(folder, 2003))) != 2003)


def test_absent_files_are_made_up_and_read_through_torchvision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # when
    data = cifar.train_set(job(tmp_path, 103))
    # then
    image, label = data[0]
    assert (len(data), image.shape, image.dtype) == (103, (3, 32, 32), torch.float32)
    assert -1 <= image.min() < image.max() <= 1
    assert data.classes[label] in cifar.CLASSES
    assert cifar.is_synthetic(data)
    assert f"data: synthetic CIFAR-10 files in {tmp_path}" in capsys.readouterr().out


def test_the_made_up_classes_can_be_told_apart(tmp_path: Path) -> None:
    # given
    data = cifar.train_set(job(tmp_path, 400))
    images = torch.stack([data[index][0].flatten() for index in range(len(data))])
    labels = torch.tensor(data.targets)
    # when each image of the second half is given the class with the nearest mean of the first
    means = torch.stack([images[:200][labels[:200] == k].mean(0) for k in range(10)])
    guesses = torch.cdist(images[200:], means).argmin(1)
    # then
    assert (guesses == labels[200:]).float().mean() > 0.95


def test_the_files_have_the_fields_of_the_real_ones(tmp_path: Path) -> None:
    # when
    cifar.write_synthetic(tmp_path, 50)
    folder = tmp_path / "cifar-10-batches-py"
    # then
    batch: dict[str, Any] = pickle.loads((folder / "data_batch_5").read_bytes())
    meta: dict[str, Any] = pickle.loads((folder / "batches.meta").read_bytes())
    assert set(batch) == {"batch_label", "labels", "data", "filenames"}
    assert (batch["data"].shape, batch["data"].dtype.name) == ((10, 3072), "uint8")
    assert len(batch["labels"]) == len(batch["filenames"]) == 10
    assert meta["label_names"] == list(cifar.CLASSES)
    assert (folder / "test_batch").is_file()


def test_ranks_that_start_at_once_make_the_files_once(tmp_path: Path) -> None:
    # given
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=make, args=(tmp_path,)) for _ in range(4)]
    # when
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    # then all read the same complete set and no scratch folder is left
    assert [rank.exitcode for rank in ranks] == [0] * 4
    left = sorted(path.name for path in (tmp_path / "synthetic-2003").iterdir())
    assert left == [".lock", "cifar-10-batches-py"]


def test_without_locks_one_of_two_makers_wins(tmp_path: Path) -> None:
    cifar.write_synthetic(tmp_path, 20, seed=1)
    first = (tmp_path / "cifar-10-batches-py" / "data_batch_1").read_bytes()
    cifar.write_synthetic(tmp_path, 20, seed=2)
    assert (tmp_path / "cifar-10-batches-py" / "data_batch_1").read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_marked_is_never_taken_for_a_made_up_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given files where the real ones belong, which are not the real ones
    cifar.write_synthetic(tmp_path, 20)
    # when
    with pytest.raises(SystemExit) as caught:
        cifar.train_set(job(tmp_path))
    # then
    error = capsys.readouterr().err
    assert caught.value.code == 1
    assert error.count("\n") == 1
    assert "put CIFAR-10's own files there" in error


def test_damaged_made_up_files_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given
    cifar.train_set(job(tmp_path, 50))
    folder = tmp_path / "synthetic-50" / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(b"")
    # when
    with pytest.raises(SystemExit):
        cifar.train_set(job(tmp_path, 50))
    # then
    assert capsys.readouterr().err == (
        f"data: the files in {folder} are damaged or incomplete: "
        "remove the folder, and it is made again\n"
    )


def test_a_folder_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a file where the folder should be
    (tmp_path / "file").touch()
    # when
    with pytest.raises(SystemExit):
        cifar.train_set(job(tmp_path / "file"))
    # then
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "give another --data-dir" in error
