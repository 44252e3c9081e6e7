"""The healthy control: a step that is nearly all computation.

Wide convolutions in bfloat16 on batches that lie on the device already. Few, large kernels keep the
GPU busy while the host runs ahead; the gradients are small beside the work that makes them, so DDP
hides their all-reduce. Nothing here waits for the GPU. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.compute_heavy --steps 100
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from torch import nn

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import common, models


def main() -> None:
    """Train until the options say stop."""
    with common.job("compute-heavy") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    shape = (3, options.image_size, options.image_size)
    loader = common.resident_loader(common.random_batches(shape, job), job)

    torch.backends.cudnn.benchmark = True  # the shapes never change: find the fastest kernels
    model = common.wrap(models.conv_stack(options.channels, options.depth), job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            images, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()

            common.log(loss=loss.detach())
            if report.step():  # without the loss: reading it would wait for the GPU
                return


if __name__ == "__main__":
    main()
