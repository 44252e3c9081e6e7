"""JPEG files: the real ones where they are, made up once elsewhere, and damage told in a line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torch.utils.data import DataLoader

from torchtop_workloads import common, images, synthetic

Go = Callable[..., int]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHTOP_DEVICE", "cpu")
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "torchtop" / "data"


def load(*argv: str, workers: int = 0) -> int:
    """Go through all files once, as a training script does; the number of batches."""
    with common.job("resnet50-imagenet", ["--image-size=32", "--batch=2", *argv]) as job:
        data = images.train_set(job)
        loader = DataLoader(data, batch_size=job.batch, num_workers=workers)
        count = len(data._files) // job.batch
        batches = [batch for batch, _ in zip(loader, range(count), strict=False)]
        assert all(pictures.shape == (2, 3, 32, 32) for pictures, _ in batches)
    return len(batches)


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error.rstrip("\n")


def test_they_are_made_once_and_an_epoch_is_long(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load("--synthetic-size=10") == 5
    made = {file: file.stat().st_mtime_ns for file in cache.rglob("*.jpg")}
    assert load("--synthetic-size=10") == 5

    assert len(made) == 10
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.jpg")} == made
    assert "data: synthetic JPEG files in " in capsys.readouterr().out
    data = images.Photographs(cache / "synthetic-jpeg-10" / "train", 32, True)
    assert len(data) == images.EPOCH


def test_real_files_are_used_where_they_lie(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given somebody's own files, one time with train/ and one time without
    load("--synthetic-size=10")
    own = tmp_path / "own"
    shutil.copytree(cache / "synthetic-jpeg-10" / "train", own / "train")
    capsys.readouterr()

    for folder in (own, own / "train"):
        assert load(f"--data-dir={folder}") == 5
        assert f"data: JPEG files in {own / 'train'}\n" in capsys.readouterr().out


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_file_ends_the_run_with_its_name_in_one_line(
    cache: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    load("--synthetic-size=10")
    damaged = cache / "synthetic-jpeg-10" / "train" / "class04" / "000004.jpg"
    damaged.write_bytes(damaged.read_bytes()[:3000])
    with pytest.raises(SystemExit) as caught:
        load("--synthetic-size=10", workers=workers)

    assert caught.value.code == 1
    line = only_line(capsys)
    assert line.startswith(f"data: {damaged} is damaged (")
    assert line.endswith(f"remove {cache / 'synthetic-jpeg-10'}, and it is made again")


def test_what_is_no_image_of_the_users_is_to_be_replaced(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "own" / "train" / "cat"
    place.mkdir(parents=True)
    for name in ("a.jpg", "b.jpg"):
        (place / name).write_text("\x1b[31mnot an image")
    with pytest.raises(SystemExit):
        load(f"--data-dir={tmp_path / 'own'}")

    line = only_line(capsys)
    assert line.startswith(f"data: {place / 'a.jpg'} is damaged (cannot identify image file")
    assert line.endswith("replace or remove it")


def test_too_little_room_is_told_before_anything_is_written(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(cache.parents[1])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100 << 20))
    with pytest.raises(SystemExit) as caught:
        load("--synthetic-size=2000")

    assert caught.value.code == 1
    line = only_line(capsys)
    assert "475 MiB are needed in" in line
    assert "100 MiB are free" in line
    assert "--data-dir" in line
    assert list(cache.rglob("*.jpg")) == []


def test_what_a_killed_process_left_half_made_is_removed(cache: Path) -> None:
    half = cache / ".making-abc" / "train"
    half.mkdir(parents=True)
    load("--synthetic-size=10")

    assert not half.parent.exists()
    assert {file.name for file in cache.iterdir()} == {".lock", "synthetic-jpeg-10"}


def test_the_making_is_told_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "_TELL_EVERY_S", 0.0)
    progress = synthetic.Progress("JPEG files", 2)
    progress.done(1)
    assert capsys.readouterr().out == "data: making JPEG files: 1 of 2\n"
