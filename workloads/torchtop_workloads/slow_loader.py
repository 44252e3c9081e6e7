"""A data stall: the GPU waits because the loader cannot keep up.

Each image takes ``item_ms`` longer to read, as from a busy network disk, and the workers share that
time: a rank's batch takes batch x item_ms / workers. More ``--workers`` help, and
``--data memory`` shows the speed without loading. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.slow_loader --steps 100
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.datasets import CIFAR10

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import cifar, common, models


class SlowImages(Dataset[tuple[Tensor, Tensor]]):
    """Images that each take a while to read.

    Args:
        images: the data set behind.
        item_ms: extra time for each image, ms.
    """

    def __init__(self, images: CIFAR10, item_ms: float) -> None:
        self._images = images
        self._seconds = item_ms / 1000

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self._seconds)  # the slow disk: this is the fault to find
        image, label = self._images[index]
        return image, torch.tensor(label)


def main() -> None:
    """Train until the options say stop."""
    with common.job("slow-loader") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    files = cifar.train_set(job)
    dataset = SlowImages(files, job.options.item_ms)
    sampler: DistributedSampler[common.Batch] = DistributedSampler(
        dataset, job.world_size, job.rank, shuffle=True, seed=job.options.seed, drop_last=True
    )
    if job.options.data == "memory":
        batches = common.first_batches(files, sampler, job)
        loader = common.resident_loader(batches, job, length=len(sampler) // job.batch)
    else:
        loader = DataLoader(
            dataset,
            batch_size=job.batch,
            sampler=sampler,
            num_workers=job.options.workers,
            pin_memory=job.pin_memory,
            persistent_workers=job.options.workers > 0,
            drop_last=True,
        )

    model = common.wrap(models.small_cnn(), job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.options.lr, momentum=0.9)

    report = common.Report(job, loader, synthetic_data=cifar.is_synthetic(files))
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for batch in loader:
            images, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()

            common.log(loss=loss.detach())
            if report.step(loss):
                return


if __name__ == "__main__":
    main()
