"""Exposed communication: the all-reduce of the gradients takes longer than the work that hides it.

A wide perceptron has as many gradients to send as weights, and with a small batch little to compute
for each. DDP starts to send a bucket as soon as its gradients are there, but the backward ends
before the sending does, and the optimizer must wait. A larger ``--batch`` hides more. Run it alone
with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.comm_heavy --steps 100
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
    with common.job("comm-heavy") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    loader = common.resident_loader(common.random_batches((options.width,), job), job)

    with job.device:  # half a billion weights: drawn where they are used
        network = models.perceptron(options.width, options.depth)
    megabytes = sum(parameter.nbytes for parameter in network.parameters()) / 1e6
    job.say(f"gradients: {megabytes:.0f} MB a rank in each step")
    model = common.wrap(network, job, bucket_cap_mb=options.bucket_mb)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            inputs, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                loss = criterion(model(inputs), labels)
            loss.backward()  # DDP sends the gradients in here
            optimizer.step()

            common.log(loss=loss.detach())
            if report.step(loss):
                return


if __name__ == "__main__":
    main()
