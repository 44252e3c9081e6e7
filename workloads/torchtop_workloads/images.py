"""ImageNet as JPEG files in torchvision's ImageFolder layout; made up where the files are absent.

The made-up photographs have ImageNet's usual size, 500 x 375 pixels, and about 100 kB each, so that
decoding one costs what it costs with the real set.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import (
    Compose,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
)
from torchvision.transforms.functional import to_pil_image

from torchtop_workloads.common import Batch, DataError, Job, fail
from torchtop_workloads.synthetic import MARKER, Progress, default_dir, make_once

CLASSES = 1000
"""Outputs of the network: those of ImageNet, however few classes are on the disk."""

EPOCH = 128_000
"""Made-up images go by so often that an epoch has this many: the loader's workers do not run dry
every few steps."""

_MADE_CLASSES = 10
_HEIGHT, _WIDTH = 375, 500
_BYTES = 115_000
"""Of one made-up file, at the most."""
_MEAN, _SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Photographs(Dataset[Batch]):
    """The files of an `ImageFolder`, gone through several times in an epoch.

    Args:
        folder: where the class folders lie.
        size: height and width of the images after cropping, pixels.
        synthetic: whether they are made up.

    Raises:
        SystemExit: with one line, when there are none.
    """

    def __init__(self, folder: Path, size: int, synthetic: bool) -> None:
        crop = [RandomResizedCrop(size), RandomHorizontalFlip()]
        steps = Compose([*crop, ToTensor(), Normalize(_MEAN, _SPREAD)])
        try:
            self._files = ImageFolder(str(folder), steps)
        except (OSError, RuntimeError) as error:
            fail(f"data: {str(error).splitlines()[0]}")
        self.synthetic = synthetic
        self._passes = max(1, EPOCH // len(self._files)) if synthetic else 1

    def __len__(self) -> int:
        return len(self._files) * self._passes

    def __getitem__(self, index: int) -> Batch:
        place = index % len(self._files)
        try:
            image, label = self._files[place]
        except (OSError, SyntaxError, ValueError) as error:
            path = self._files.samples[place][0]
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not self.synthetic:
                raise DataError(f"data: {path} is damaged ({why}): replace or remove it") from None
            again = Path(path).parents[2]
            raise DataError(
                f"data: {path} is damaged ({why}): remove {again}, and it is made again"
            ) from None
        return image, torch.tensor(label)


def train_set(job: Job) -> Photographs:
    """The training images as normalised tensors: the real ones, else made up.

    Returns:
        A data set of (3 x image_size x image_size float32, class) pairs.

    Raises:
        SystemExit: with one line, when the files can be neither read nor made.
    """
    options = job.options
    root = Path(options.data_dir or default_dir()).expanduser()
    real = _real(root) if options.data_dir else _real(root / "imagenet")
    if real is None:
        real, synthetic = _made_up(root, options.synthetic_size), True
    else:
        synthetic = (real.parent / MARKER).is_file()
    data = Photographs(real, options.image_size, synthetic)
    job.say(f"data: {'synthetic ' if synthetic else ''}JPEG files in {real}")
    return data


def _real(root: Path) -> Path | None:
    """Where the class folders of a set of images lie, if there is one in `root`."""
    for folder in (root / "train", root):
        try:
            classes = [place for place in folder.iterdir() if place.is_dir()]
        except OSError:
            continue
        if any(next(place.glob("*.[jJ][pP]*[gG]"), None) for place in classes):
            return folder
    return None


def _made_up(root: Path, size: int) -> Path:
    name = f"synthetic-jpeg-{size}"
    return make_once(root, name, size * _BYTES, lambda folder: _write(folder, size)) / "train"


def _write(folder: Path, size: int) -> None:
    """Write the files: each image is its class's pattern, shifted, plus noise."""
    random = torch.Generator().manual_seed(0)
    coarse = torch.rand(_MADE_CLASSES, 3, 9, 12, generator=random) * 180 + 20
    patterns = interpolate(coarse, (_HEIGHT, _WIDTH), mode="bilinear", align_corners=False)
    folders = [folder / "train" / f"class{index:02}" for index in range(_MADE_CLASSES)]
    for place in folders:
        place.mkdir(parents=True)
    progress = Progress("JPEG files", size)
    for index in range(size):
        label = index % _MADE_CLASSES
        # The noise is what makes a file as large as a photograph's.
        noise = torch.empty(3, _HEIGHT, _WIDTH).random_(-24, 25, generator=random)
        shift = int(torch.randint(_WIDTH, (1,), generator=random))
        image = (patterns[label].roll(shift, 2) + noise).clamp(0, 255).to(torch.uint8)
        to_pil_image(image).save(str(folders[label] / f"{index:06}.jpg"), quality=90)
        progress.done(index + 1)
    (folder / MARKER).write_text(json.dumps({"images": size}) + "\n")
