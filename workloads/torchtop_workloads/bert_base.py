"""A BERT-base-sized encoder that classifies sequences, as in fine-tuning.

Between the large matrix products lie many pointwise operations (bias, GELU, dropout, normalisation)
that ``--compile`` fuses, and ``--amp`` halves what all of them move. torch alone is needed, also an
old release. Run it alone with::

    torchrun --nproc-per-node 2 -m torchtop_workloads.bert_base --steps 100 --amp --compile
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
    with common.job("bert-base") as job:
        train(job)


def train(job: common.Job) -> None:
    """The training loop of one rank."""
    options = job.options
    loader = common.resident_loader(tokens.labelled(job), job)

    model = common.wrap(
        transformer.Encoder(
            options.vocab, options.width, options.layers, options.heads, options.seq_len
        ),
        job,
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)

    report = common.Report(job, loader, synthetic_data=True)
    for _epoch in itertools.count():
        for batch in loader:
            text, labels = job.to_device(batch)

            optimizer.zero_grad()
            with job.autocast():
                scores = model(text)
                loss = criterion(scores, labels)
            loss.backward()
            optimizer.step()

            # Tensors, not numbers: reading them here would make the host wait for the GPU.
            accuracy = (scores.detach().argmax(1) == labels).float().mean()
            common.log(loss=loss.detach(), accuracy=accuracy)
            if report.step():  # without the loss: reading it would wait for the GPU
                return


if __name__ == "__main__":
    main()
