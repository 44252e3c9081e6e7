"""A plain DDP script with several ways to train, each printing what it came to.

Run by torchrun, with the probe and without: what it prints must be the same.
"""

import contextlib
import hashlib
import os
import sys
import time

assert "torch" not in sys.modules  # nobody was earlier
os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "0"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

import torchtop  # noqa: E402

BATCH = 4
DELAY_S = 0.04


class Net(nn.Module):
    """A few layers, of which one may be left out, or all of them computed twice."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 32)
        self.unused, self.last = nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x):
        if self.way == "reentrant":
            # All layers: DDP then waits for communication within the nested backward.
            return checkpoint(self.layers, x.requires_grad_(), use_reentrant=True)
        return self.layers(x)

    def layers(self, x):
        x = self.second(torch.relu(self.first(x)))
        if self.way != "unused":
            x = self.unused(x)
        return self.last(x)


def dataset(batches):
    """As many batches for each of the ranks."""
    made = torch.Generator().manual_seed(5)
    count = batches * BATCH * dist.get_world_size()
    x = torch.randn(count, 8, generator=made)
    return TensorDataset(x, torch.randint(0, 3, (count,), generator=made))


def fingerprint(model):
    """The weights, to the last bit."""
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def train(way, *, batches=8, epochs=1, workers=0, accumulate=1, delay_rank=None, **ddp):
    """One way to train, from fresh weights."""
    torch.manual_seed(11)
    model = DistributedDataParallel(Net(way), **ddp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = dataset(batches)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=workers)
    evaluation = DataLoader(dataset(2), BATCH, num_workers=workers)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for n, (x, y) in enumerate(loader, 1):
            if delay_rank == dist.get_rank():
                time.sleep(DELAY_S)
            last = n % accumulate == 0
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            torchtop.log(loss=loss, way=len(losses))
            losses.append(loss.item())
        with torch.no_grad():
            losses += [model.module(x).sum().item() for x, _ in evaluation]
    print(way, fingerprint(model), [f"{loss:.9g}" for loss in losses])


def break_the_probe():
    """Where there is one: from now on it fails."""
    batch = sys.modules.get("_torchtop.probe.batch")
    if batch is not None:

        def count(*args):
            raise ArithmeticError("broken by the script")

        batch.count = count


def main():
    """All ways, one after the other."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print("rank", dist.get_rank(), __name__, __file__, sys.argv, sys.path[0])
    train("plain", epochs=2, workers=2, bucket_cap_mb=0.004)
    train("reentrant", delay_rank=1)
    train("accumulate", accumulate=4)
    train("static", static_graph=True)
    train("unused", find_unused_parameters=True)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    break_the_probe()
    train("broken")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
