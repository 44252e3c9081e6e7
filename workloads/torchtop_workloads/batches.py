"""Batches that exist before training begins, so that compute is measured and not loading."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

if TYPE_CHECKING:
    from torchtop_workloads.common import Job

Batch = tuple[Tensor, Tensor]
Hook = Callable[[], None]


class ResidentBatches(Dataset[Batch]):
    """Batches made once and handed out again and again."""

    def __init__(self, batches: Sequence[Batch], length: int, fetch: Hook | None) -> None:
        self._batches = batches
        self._length = length
        self._fetch = fetch

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        if self._fetch is not None:
            self._fetch()
        return self._batches[index % len(self._batches)]


def resident_loader(
    batches: Sequence[Batch],
    job: Job,
    *,
    length: int = 500,
    fetch: Hook | None = None,
) -> DataLoader[Batch]:
    """A loader of batches that exist already, so that compute is measured and not loading.

    Without loader workers the batches lie on the device. With workers they stay in host memory and
    pass through the workers, since a CUDA tensor must not enter a forked process.

    Args:
        batches: pairs of tensors (samples first), as many as memory allows.
        job: whose device and loader options.
        length: batches in an epoch.
        fetch: called for each batch, where it is loaded.
    """
    workers = job.options.workers
    if workers == 0:
        batches = [
            (laid_out(samples, job.memory_format).to(job.device), labels.to(job.device))
            for samples, labels in batches
        ]
    return DataLoader(
        ResidentBatches(batches, length, fetch),
        batch_size=None,  # the items are batches already
        num_workers=workers,
        pin_memory=job.pin_memory and workers > 0,
        persistent_workers=workers > 0,
    )


def laid_out(samples: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Samples in a memory format, which only images have."""
    return samples.to(memory_format=memory_format) if samples.dim() == 4 else samples


def first_batches(
    dataset: Dataset[Any], indices: Iterable[Any], job: Job, *, count: int = 4
) -> list[Batch]:
    """The first batches that a loader would make, without a loader.

    Args:
        dataset: of (sample, label) pairs.
        indices: which samples, in order; a sampler, say.
        job: whose batch size.
        count: number of batches at most.
    """
    chosen = list(itertools.islice(indices, count * job.batch))
    whole = len(chosen) - len(chosen) % job.batch
    return [
        default_collate([dataset[index] for index in chosen[start : start + job.batch]])
        for start in range(0, whole, job.batch)
    ]


def random_batches(shape: Sequence[int], job: Job, *, count: int = 4) -> list[Batch]:
    """Batches of noise around one pattern for each of ten classes, so that a loss can fall.

    Args:
        shape: of one sample.
        job: whose batch size and seed; each rank gets other batches.
        count: number of batches.

    Returns:
        Pairs of float32 samples (batch, *shape) and int64 labels (batch,), on the host.
    """
    generator = torch.Generator().manual_seed(job.options.seed)
    patterns = torch.randn(10, *shape, generator=generator)
    generator.manual_seed(job.options.seed + 1 + job.rank)
    batches = []
    for _ in range(count):
        labels = torch.randint(10, (job.batch,), generator=generator)
        noise = torch.randn(job.batch, *shape, generator=generator)
        batches.append((patterns[labels] + noise, labels))
    return batches
