"""Ways to train on two ranks: ``torchrun --nproc-per-node 2 parallel.py WAY``."""

import contextlib
import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from toy import BATCH, EvalData, TrainData, loss_of, net, slowly, told


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loader(data, **options):
    """A loader of this rank's part of the data."""
    sampler = DistributedSampler(data, shuffle=False)
    return DataLoader(data, BATCH, sampler=sampler, **options)


def train(model, batches, optimizer):
    """The textbook loop; returns the losses."""
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def ddp():
    """Epochs with evaluation on each rank and a checkpoint on the first."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    batches, evaluation = loader(TrainData(64), num_workers=1), DataLoader(EvalData(8), BATCH)
    losses = []
    for epoch in range(3):
        batches.sampler.set_epoch(epoch)
        losses += train(model, batches, optimizer)
        with torch.no_grad():
            losses += [loss_of(model.module, batch) for batch in evaluation]
        slowly()
        dist.barrier()
    told(losses, model)


def accumulate(waits):
    """Four micro-batches a step."""
    model = DistributedDataParallel(net())
    optimizer = sgd(model)
    batches = loader(TrainData(320))
    losses = []
    for _ in range(2):
        for number, batch in enumerate(batches, 1):
            last = number % 4 == 0
            with model.no_sync() if waits and not last else contextlib.nullcontext():
                loss = loss_of(model, batch) / 4
                loss.backward()
            losses.append(loss.detach())
            if last:
                optimizer.step()
                optimizer.zero_grad()
    told(losses, model)


def no_sync():
    """Gradients are synchronised once a step."""
    accumulate(waits=True)


def sync_each():
    """Gradients are synchronised after each micro-batch."""
    accumulate(waits=False)


def gan():
    """Two models of which each waits for the other ranks."""
    torch.manual_seed(11)
    maker = DistributedDataParallel(nn.Linear(4, 8))
    judge = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    makes, judges = sgd(maker), torch.optim.Adam(judge.parameters(), lr=0.01)
    measure = nn.BCEWithLogitsLoss()
    real, fake = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    batches = loader(TrainData(64))
    losses = []
    for _ in range(3):
        for x, _ in batches:
            made = maker(torch.randn(BATCH, 4))
            judges.zero_grad()
            loss = measure(judge(torch.cat([x, made.detach()])), torch.cat([real, fake]))
            loss.backward()
            judges.step()
            makes.zero_grad()
            at_made = measure(judge(made), real)
            at_made.backward()
            makes.step()
            losses += [loss.detach(), at_made.detach()]
    told(losses, maker, judge)


def compiled():
    """A compiled DistributedDataParallel."""
    model = DistributedDataParallel(net())
    fast = torch.compile(model, backend="aot_eager")
    told(train(fast, list(loader(TrainData(64))) * 3, sgd(model)), model)
    print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])


def fsdp2():
    """Parameters, gradients and optimizer in shards."""
    from torch.distributed.fsdp import fully_shard

    model = net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    losses = []
    optimizer, batches = sgd(model), loader(TrainData(64))
    for _ in range(3):
        losses += train(model, batches, optimizer)
    for name, tensor in model.state_dict().items():
        print(name, f"{tensor.full_tensor().double().sum().item():.17g}")
    told(losses)


def zero():
    """The optimizer's state in shards."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    batches = loader(TrainData(64))
    losses = []
    for _ in range(3):
        losses += train(model, batches, optimizer)
    told(losses, model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3 + dist.get_rank())
    globals()[sys.argv[1]]()
    dist.barrier()
    # DistributedDataParallel lies in cycles. A group that it still holds when the interpreter has
    # gone now and then aborts the process (gloo: "terminate called without an active exception").
    gc.collect()
    dist.destroy_process_group()
