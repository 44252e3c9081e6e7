"""Made-up sequences of tokens that a model can learn something from. torch alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torchtop_workloads.batches import Batch
    from torchtop_workloads.common import Job

BATCHES = 4
"""Handed out again and again: a step costs the same whatever the tokens are."""

RELIABLE = 0.9
"""How often the next token is the one that the rule says."""


def labelled(job: Job, classes: int = 2) -> list[Batch]:
    """Sequences, each with a class that half of its tokens give away.

    Args:
        job: whose sizes and seed; each rank gets other sequences.
        classes: number of classes.

    Returns:
        Pairs of int64 tokens (batch, seq_len) and int64 labels (batch,), on the host.
    """
    options, random = job.options, _random(job)
    batches = []
    for _ in range(BATCHES):
        labels = torch.randint(classes, (job.batch,), generator=random)
        tokens = torch.randint(options.vocab, (job.batch, options.seq_len), generator=random)
        # Half of the vocabulary is for everybody, the rest for one class each.
        part = options.vocab // (2 * classes)
        telling = tokens % part + (classes + labels.unsqueeze(1)) * part
        gives_away = torch.rand(tokens.shape, generator=random) < 0.5
        batches.append((torch.where(gives_away, telling, tokens % (classes * part)), labels))
    return batches


def running(job: Job) -> list[Batch]:
    """Sequences in which a token mostly says what the next one is.

    Args:
        job: whose sizes and seed; each rank gets other sequences.

    Returns:
        Pairs of int64 tokens (batch, seq_len) and int64 next tokens (batch, seq_len), on the host.
    """
    options, random = job.options, _random(job)
    batches = []
    for _ in range(BATCHES):
        token = torch.randint(options.vocab, (job.batch,), generator=random)
        text = [token]
        for _ in range(options.seq_len):
            other = torch.randint(options.vocab, (job.batch,), generator=random)
            keeps = torch.rand(job.batch, generator=random) < RELIABLE
            token = torch.where(keeps, (31 * token + 7) % options.vocab, other)
            text.append(token)
        whole = torch.stack(text, 1)
        batches.append((whole[:, :-1].contiguous(), whole[:, 1:].contiguous()))
    return batches


def _random(job: Job) -> torch.Generator:
    return torch.Generator().manual_seed(job.options.seed + 1 + job.rank)
