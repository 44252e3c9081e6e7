"""CIFAR-10 in its own file format, read by torchvision; made up where the files are absent.

Nothing is downloaded. The made-up images lie in a folder of their own, marked as such, in the same
format (pickled batches of 3072-byte rows, https://www.cs.toronto.edu/~kriz/cifar.html), so that the
loading path is the real one.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
from torchvision.datasets import CIFAR10
from torchvision.transforms import Compose, Normalize, ToTensor

from torchtop_workloads.common import Job, fail
from torchtop_workloads.synthetic import MARKER, default_dir, make_once, write_whole

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

_FOLDER = CIFAR10.base_folder
_ROW = 3 * 32 * 32


class SyntheticCIFAR10(CIFAR10):  # type: ignore[misc]
    """Made-up images in CIFAR-10's files.

    torchvision compares the files with the checksums of the real ones; here the marker stands for
    them. It refuses a folder without one, so that a damaged real set is never taken for this.
    """

    meta = {**CIFAR10.meta, "md5": None}  # noqa: RUF012 - torchvision's own attribute

    def _check_integrity(self) -> bool:
        return Path(self.root, _FOLDER, MARKER).is_file()


def train_set(job: Job) -> CIFAR10:
    """The training images as normalised tensors: the real ones, else made up.

    Returns:
        A data set of (3 x 32 x 32 float32 in -1..1, class) pairs.

    Raises:
        SystemExit: with one line, when the files can be neither read nor made.
    """
    root = Path(job.options.data_dir or default_dir()).expanduser()
    transform = Compose([ToTensor(), Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])
    if (root / _FOLDER).exists():
        kind, advice = CIFAR10, "put CIFAR-10's own files there, or remove the folder"
    else:
        kind, advice = SyntheticCIFAR10, "remove the folder, and it is made again"
        root = _synthetic_root(root, job.options.synthetic_size)
    try:
        data = kind(str(root), train=True, transform=transform)
    except (RuntimeError, OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError):
        fail(f"data: the files in {root / _FOLDER} are damaged or incomplete: {advice}")
    made_up = "synthetic " if kind is SyntheticCIFAR10 else ""
    job.say(f"data: {made_up}CIFAR-10 files in {root / _FOLDER}")
    return data


def is_synthetic(data: CIFAR10) -> bool:
    """Whether the images were made up."""
    return isinstance(data, SyntheticCIFAR10)


def _synthetic_root(root: Path, size: int) -> Path:
    place = root / f"synthetic-{size}"
    random = np.random.default_rng(0)
    make_once(
        place, _FOLDER, size * _ROW * 6 // 5, lambda folder: _write_files(folder, size, random)
    )
    return place


def write_synthetic(place: Path, size: int, seed: int = 0) -> None:
    """Write a made-up data set into ``place/cifar-10-batches-py``, complete or not at all.

    Each image is its class's pattern plus noise, so that a loss falls.

    Args:
        place: an existing folder.
        size: number of training images; there are a fifth as many test images.
        seed: of the patterns and the noise.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    random = np.random.default_rng(seed)
    write_whole(place, _FOLDER, lambda folder: _write_files(folder, size, random))


def _write_files(folder: Path, size: int, random: np.random.Generator) -> None:
    coarse = random.integers(0, 160, (len(CLASSES), 3, 8, 8), np.uint8)
    patterns = coarse.repeat(4, axis=2).repeat(4, axis=3).reshape(len(CLASSES), _ROW)
    parts = len(CIFAR10.train_list)
    counts = {
        name: size // parts + (index < size % parts)
        for index, (name, _) in enumerate(CIFAR10.train_list)
    }
    counts[CIFAR10.test_list[0][0]] = max(1, size // 5)
    for name, count in counts.items():
        labels = random.integers(0, len(CLASSES), count)
        images = random.integers(0, 96, (count, _ROW), np.uint8)
        images += patterns[labels]
        batch = {
            "batch_label": f"synthetic {name}",
            "labels": labels.tolist(),
            "data": images,
            "filenames": [f"{name}_{index}.png" for index in range(count)],
        }
        _dump(folder / name, batch)
    meta = {"num_cases_per_batch": size // parts, "label_names": list(CLASSES), "num_vis": _ROW}
    _dump(folder / "batches.meta", meta)
    (folder / MARKER).write_text(json.dumps({"images": size}) + "\n")


def _dump(path: Path, value: object) -> None:
    # Protocol 2 is what the real files have.
    with path.open("wb") as file:
        pickle.dump(value, file, protocol=2)
