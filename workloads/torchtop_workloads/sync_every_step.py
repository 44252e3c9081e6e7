"""A hidden synchronisation: reading the loss makes the host wait for the GPU in every step.

``loss.item()`` returns when the GPU has done all that was queued. Then the queue is empty, and the
GPU idles until the host has issued the next step's first kernels, of which there are many small
ones here. ``--read-every 50`` shows the speed without. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.sync_every_step --steps 100
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
    with common.job("sync-every-step") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    loader = common.resident_loader(common.random_batches((options.features,), job), job)

    network = models.fronted_perceptron(options.features, options.ops, options.width, options.depth)
    model = common.wrap(network, job)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

    report = common.Report(job, loader, synthetic_data=True)
    step, average = 0, 0.0
    for _epoch in itertools.count():
        for batch in loader:
            inputs, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()

            step += 1
            if step % options.read_every == 0:
                # Waits for the GPU: this is the fault to find.
                average = 0.9 * average + 0.1 * loss.item()
            common.log(loss=loss.detach())
            if report.step():
                job.say(f"smoothed loss {average:.4f}")
                return


if __name__ == "__main__":
    main()
