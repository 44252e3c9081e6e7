"""What the small training scripts of this folder share: data, a model, and what they print."""

import hashlib
import time

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

BATCH = 4
SLEEP_S = 0.04


class TrainData(Dataset):
    """Rows of numbers with a class each, the same in every process."""

    def __init__(self, count=32, seed=5):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 8, generator=made)
        self.y = torch.randint(0, 3, (count,), generator=made)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class EvalData(TrainData):
    """The same for evaluation."""


class Stream(IterableDataset):
    """The rows one by one, of unknown number; workers share them."""

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        data = TrainData()
        for index in range(first, len(data), stride):
            yield data[index]


def net():
    """A small model, the same in every process."""
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def loss_of(model, batch):
    """Cross-entropy of a batch."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def fingerprint(*modules):
    """The weights, to the last bit."""
    made = hashlib.sha256()
    for module in modules:
        for tensor in module.state_dict().values():
            made.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()[:16]


def told(losses, *modules):
    """Print what a run came to."""
    for loss in losses:
        print(f"{float(loss):.9g}")
    print("weights", fingerprint(*modules))


def slowly():
    """Time that a script takes for evaluation, a checkpoint or its log."""
    time.sleep(SLEEP_S)
