"""ResNet-50 on JPEG files of ImageNet's size, decoded by the loader's workers.

A core decodes a few hundred such files a second, and a large GPU eats thousands: ``--workers`` is
what this turns on, and ``--data memory`` shows the speed without decoding. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.resnet50_imagenet --steps 30 --amp
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.models import resnet50

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import common, images


def main() -> None:
    """Train until the options say stop."""
    with common.job("resnet50-imagenet") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    sampler: DistributedSampler[common.Batch] | None = None
    synthetic = True
    if options.data == "memory":
        shape = (3, options.image_size, options.image_size)
        loader = common.resident_loader(common.random_batches(shape, job), job)
    else:
        dataset = images.train_set(job)
        synthetic = dataset.synthetic
        sampler = DistributedSampler(
            dataset, job.world_size, job.rank, shuffle=True, seed=options.seed, drop_last=True
        )
        loader = DataLoader(
            dataset,
            batch_size=job.batch,
            sampler=sampler,
            num_workers=options.workers,
            pin_memory=job.pin_memory,
            persistent_workers=options.workers > 0,
            drop_last=True,
        )

    torch.backends.cudnn.benchmark = True  # the shapes never change: find the fastest kernels
    model = common.wrap(resnet50(num_classes=images.CLASSES), job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    report = common.Report(job, loader, synthetic_data=synthetic)
    for epoch in itertools.count():
        if sampler is not None:
            sampler.set_epoch(epoch)  # another order in every epoch
        for batch in loader:
            pictures, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                logits = model(pictures)
                loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()

            # Tensors, not numbers: reading them here would make the host wait for the GPU.
            accuracy = (logits.detach().argmax(1) == labels).float().mean()
            common.log(loss=loss.detach(), accuracy=accuracy)
            if report.step():  # without the loss: reading it would wait for the GPU
                return


if __name__ == "__main__":
    main()
