"""A plain DDP script with the things of torch that a probe could break, each printing what came.

Run with the probe and without: what it prints must be the same, to the last bit of the weights and
to the last graph break. Arguments: the ways to train, or none for all of them.
"""

import collections
import hashlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WAYS = {}
BATCH = 4
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")


def way(function):
    """Register a way to train."""
    WAYS[function.__name__] = function
    return function


def loader(batches=6, *, rest=0):
    """Batches of 4, and a last one of `rest`."""
    made = torch.Generator().manual_seed(5)
    count = batches * BATCH + rest
    x = torch.randn(count, 8, generator=made)
    return DataLoader(TensorDataset(x, torch.randint(0, 3, (count,), generator=made)), BATCH)


def network():
    """A few layers with the same weights each time."""
    torch.manual_seed(11)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3)]
    return nn.Sequential(*layers).to(DEVICE)


def ddp(module, **settings):
    """The module in DDP, on one rank."""
    return DistributedDataParallel(module, device_ids=[0] if CUDA else None, **settings)


def sgd(model):
    """An optimizer with a state."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def epochs(step, batches=None, count=2):
    """Train, on the device."""
    batches = batches or loader()
    for _ in range(count):
        for x, y in batches:
            step(x.to(DEVICE), y.to(DEVICE))


def plain_step(model, optimizer):
    """One step as everybody writes it."""

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def train(model, **how):
    """Train a model; returns what holds the weights."""
    epochs(plain_step(model, sgd(model)), **how)
    return model


@way
def compiled_model():
    """A compiled model without DDP; the last batch is smaller, and compiled again."""
    return train(torch.compile(network(), backend="aot_eager"), batches=loader(rest=2))


@way
def ddp_of_compiled():
    """DDP around a compiled model."""
    return train(ddp(torch.compile(network(), backend="aot_eager")))


@way
def compiled_ddp():
    """A compiled DDP model, which Dynamo splits at the buckets."""
    return train(torch.compile(ddp(network()), backend="aot_eager"))


@way
def compiled_in_place():
    """A model compiled by its own method."""
    model = network()
    model.compile(backend="eager")
    return train(ddp(model))


@way
def compiled_step():
    """The whole step, ``loss.backward`` and the optimizer in it."""
    model = ddp(network())
    epochs(torch.compile(plain_step(model, sgd(model)), backend="eager"))
    return model


@way
def compiled_step_by_function():
    """The whole step, with ``torch.autograd.backward`` by name."""
    model = network()
    optimizer = sgd(model)

    @torch.compile(backend="eager")
    def step(x, y):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()

    epochs(step)
    return model


@way
def compiled_loop():
    """A whole epoch, with the loader in it."""
    model = network()
    optimizer = sgd(model)

    @torch.compile(backend="eager")
    def epoch(batches):
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(2):
        epoch(loader(3))
    return model


@way
def compiled_optimizer():
    """A compiled optimizer step, as the tutorials have it."""
    model = ddp(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    update = torch.compile(optimizer.step, backend="eager")

    def step(x, y):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        update()

    epochs(step)
    return model


@way
def inductor():
    """A compiled model on the default backend."""
    return train(ddp(torch.compile(network())))


@way
def comm_hook():
    """A communication hook of the script's own, and DDP has room for one."""
    called = collections.Counter()

    def halve(state, bucket):
        called["hook"] += 1
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / 2)

    model = ddp(network())
    model.register_comm_hook(None, halve)
    train(model)
    print("called", called["hook"])
    return model


@way
def amp():
    """Mixed precision with a scaler; two steps overflow and are skipped."""
    model, skipped = ddp(network()), 0
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=4.0)
    for n, (x, y) in enumerate(loader(12)):
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.float16 if CUDA else torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
        scaler.scale(loss * float("inf") if n in (4, 7) else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    print("skipped", skipped)
    return model


@way
def captured():
    """Whole steps in a CUDA graph, replayed, and plain steps before and after."""
    model = train(network(), count=1)
    if not CUDA:
        return model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.zeros(BATCH, 8, device=DEVICE), torch.zeros(BATCH, dtype=int, device=DEVICE)
    step = plain_step(model, optimizer)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x, y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    for given_x, given_y in loader():
        x.copy_(given_x)
        y.copy_(given_y)
        graph.replay()
    torch.cuda.synchronize()
    optimizer.zero_grad()
    return train(model, count=1)


@way
def not_a_number():
    """A loss that is none from some step on."""
    model, losses = network(), []
    optimizer = sgd(model)
    for n, (x, y) in enumerate(loader()):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
        (loss * float("nan") if n >= 3 else loss).backward()
        optimizer.step()
        losses.append(loss.item())
    print(losses)
    return model


@way
def odd_loaders():
    """Loaders that nobody knows, one that is empty, and one whose batches are none."""
    model = network()
    step = plain_step(model, sgd(model))

    class Mine:
        def __iter__(self):
            return iter(loader())

        def __len__(self):
            raise TypeError("endless")

    for x, y in Mine():
        step(x.to(DEVICE), y.to(DEVICE))
    for x, y in (batch for batch in list(loader())):
        step(x.to(DEVICE), y.to(DEVICE))
    for _ in DataLoader(TensorDataset(torch.zeros(0, 8)), BATCH):
        raise AssertionError
    for odd in DataLoader([None, "text", 7], batch_size=None):
        print(odd)
    epochs(step)
    return model


@way
def frozen():
    """Backward passes that lead nowhere much: of a leaf, of several roots, of a graph kept."""
    leaf = torch.ones(1, device=DEVICE, requires_grad=True)
    for _ in range(3):
        leaf.backward()
        torch.autograd.backward([leaf * 2, leaf * 3])
        kept = (leaf * leaf).sum()
        kept.backward(retain_graph=True)
        kept.backward()
    print(leaf.grad.tolist())
    return network()


def fingerprint(model):
    """The weights, to the last bit."""
    flat = torch.cat([p.detach().flatten().float() for p in model.parameters()]).cpu()
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def compiled():
    """How often Dynamo compiled and broke."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    told = {name: dict(counters[name]) for name in ("frames", "stats") if name in counters}
    breaks = counters.get("graph_break", {})
    return told, sum(breaks.values()), sorted(text.splitlines()[0] for text in breaks)


def main():
    """The ways asked for, one after the other."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if CUDA:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if CUDA else "gloo")
    for name in sys.argv[1:] or WAYS:
        model = WAYS[name]()
        print(name, fingerprint(model), *compiled())
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
