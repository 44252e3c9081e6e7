"""ResNet-50 on CIFAR-10 with DistributedDataParallel: the textbook script.

Every rank trains the same network on its own share of each batch; DDP averages the gradients in
``backward``. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.resnet50_cifar10 --steps 30 --batch 16
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

from torchtop_workloads import cifar, common


def main() -> None:
    """Train until the options say stop."""
    with common.job("resnet50-cifar10") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    dataset = cifar.train_set(job)
    sampler: DistributedSampler[common.Batch] = DistributedSampler(
        dataset, job.world_size, job.rank, shuffle=True, seed=job.options.seed, drop_last=True
    )
    if job.options.data == "memory":
        batches = common.first_batches(dataset, sampler, job)
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

    model = common.wrap(resnet50(num_classes=10), job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=job.options.lr, momentum=0.9)

    report = common.Report(job, loader, synthetic_data=cifar.is_synthetic(dataset))
    for epoch in itertools.count():
        sampler.set_epoch(epoch)  # another order in every epoch
        for host_images, host_labels in loader:
            images = host_images.to(job.device, memory_format=job.memory_format, non_blocking=True)
            labels = host_labels.to(job.device, non_blocking=True)

            optimizer.zero_grad()
            with job.autocast():
                logits = model(images)
                loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()

            # Tensors, not numbers: reading them here would make the host wait for the GPU.
            accuracy = (logits.detach().argmax(1) == labels).float().mean()
            common.log(loss=loss.detach(), accuracy=accuracy)
            if report.step(loss):
                return


if __name__ == "__main__":
    main()
