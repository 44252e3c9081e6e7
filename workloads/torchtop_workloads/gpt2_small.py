"""A GPT-2-small-sized language model: what comes next after each token.

A step is told in tokens: batch x seq_len. The scores of 50,257 tokens after each token weigh as
much as a few layers. torch alone is needed, also an old release. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.gpt2_small --steps 100 --amp
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
from torch import nn

if not __package__:  # started as a file: find the package around it, after all others
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from torchtop_workloads import common, tokens, transformer


def main() -> None:
    """Train until the options say stop."""
    with common.job("gpt2-small") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    loader = common.resident_loader(tokens.running(job), job)

    model = common.wrap(
        transformer.Decoder(
            options.vocab, options.width, options.layers, options.heads, options.seq_len
        ),
        job,
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95))

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            text, following = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                scores = model(text)
                loss = criterion(scores.flatten(0, 1), following.flatten())
            loss.backward()
            optimizer.step()

            # A tensor, not a number: reading it here would make the host wait for the GPU.
            common.log(loss=loss.detach())
            if report.step():
                return


if __name__ == "__main__":
    main()
