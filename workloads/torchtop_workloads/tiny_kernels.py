"""Launch-bound: the GPU waits for the host, which cannot issue kernels fast enough.

A deep stack of small layers. Each kernel takes the GPU a few microseconds, and the host more than
that to issue. ``nvidia-smi`` still shows a GPU that is half busy. A larger ``--batch`` costs next
to nothing here; fewer and larger kernels help, as from ``--compile`` or a CUDA graph. Run it alone
with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.tiny_kernels --steps 100
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
    with common.job("tiny-kernels") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    loader = common.resident_loader(common.random_batches((options.width,), job), job)

    model = common.wrap(models.perceptron(options.width, options.depth), job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            inputs, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()

            common.log(loss=loss.detach())
            if report.step():  # without the loss: reading it would be another bottleneck
                return


if __name__ == "__main__":
    main()
