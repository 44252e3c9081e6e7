"""Ways to write a training loop in one process: ``python loops.py WAY``."""

import io
import queue
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import BATCH, EvalData, Stream, TrainData, loss_of, net, slowly, told


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(model, loader, epochs, optimizer):
    """The textbook loop; returns the losses."""
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses


def plain():
    """Epochs with evaluation, a checkpoint and a line of log after each."""
    model = net()
    optimizer = sgd(model)
    loader = DataLoader(TrainData(), BATCH, shuffle=True)
    evaluation = DataLoader(EvalData(12), BATCH)
    losses = []
    for _ in range(3):
        losses += train(model, loader, 1, optimizer)
        model.eval()
        with torch.no_grad():
            for batch in evaluation:
                losses.append(loss_of(model, batch))
                slowly()
        model.train()
        torch.save(model.state_dict(), io.BytesIO())
        slowly()
        print("loss", losses[-1].item())
        slowly()
    told(losses, model)


def saves_first():
    """A checkpoint between the arrival of a batch and its forward."""
    model = net()
    optimizer = sgd(model)
    losses = []
    for number, batch in enumerate(DataLoader(TrainData(64), BATCH)):
        if number % 5 == 4:
            torch.save({"model": model.state_dict(), "slow": Slow()}, io.BytesIO())
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    told(losses, model)


class Slow:
    """Takes its time to be pickled."""

    def __reduce__(self):
        slowly()
        return Slow, ()


def memory():
    """No loader: the batches are there already."""
    model = net()
    batches = [TrainData()[index : index + BATCH] for index in range(0, 32, BATCH)]
    told(train(model, batches, 3, sgd(model)), model)


def accumulation():
    """Four micro-batches a step."""
    model = net()
    optimizer = sgd(model)
    data = TrainData(96)
    losses = []
    for _ in range(3):
        for number, batch in enumerate(DataLoader(data, BATCH), 1):
            loss = loss_of(model, batch) / 4
            loss.backward()
            losses.append(loss.detach())
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    told(losses, model)


def amp():
    """bfloat16 where it is safe, without a scaler."""
    model = net()
    optimizer = sgd(model)
    losses = []
    for batch in DataLoader(TrainData(96), BATCH):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    told(losses, model)


def scaler():
    """A GradScaler, two of whose steps are held back: their gradients overflow."""
    model = net()
    optimizer = sgd(model)
    scale = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for number, batch in enumerate(DataLoader(TrainData(96), BATCH)):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        scale.scale(loss).backward()
        if number in (3, 9):
            next(model.parameters()).grad.fill_(float("inf"))
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale.step(optimizer)
        scale.update()
        losses.append(loss.detach())
    told([*losses, scale.get_scale()], model)


def compiled():
    """A compiled model."""
    model = net()
    fast = torch.compile(model, backend="aot_eager")
    losses = train(fast, DataLoader(TrainData(), BATCH, num_workers=1), 3, sgd(model))
    told(losses, model)
    print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])


def compiled_step():
    """A step that is compiled as a whole, as far as it can be."""
    model = net()
    optimizer = sgd(model)

    @torch.compile(backend="aot_eager")
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    loader = DataLoader(TrainData(), BATCH)
    losses = [step(x, y) for _ in range(3) for x, y in loader]
    told(losses, model)


def gan():
    """Two models that take turns, each with an optimizer of its own; one real, one fake pass."""
    torch.manual_seed(11)
    maker, judge = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    makes, judges = sgd(maker), torch.optim.Adam(judge.parameters(), lr=0.01)
    measure = nn.BCEWithLogitsLoss()
    real, fake = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)
    loader = DataLoader(TrainData(), BATCH)
    losses = []
    for _ in range(3):
        for x, _ in loader:
            judges.zero_grad()
            at_real = measure(judge(x), real)
            at_real.backward()
            made = maker(torch.randn(BATCH, 4))
            at_fake = measure(judge(made.detach()), fake)
            at_fake.backward()
            judges.step()
            makes.zero_grad()
            at_made = measure(judge(made), real)
            at_made.backward()
            makes.step()
            losses += [at_real.detach(), at_fake.detach(), at_made.detach()]
    told(losses, maker, judge)


def loaders():
    """Two loaders that feed a step together, and two to evaluate with, one within the epoch."""
    model = net()
    optimizer = sgd(model)
    labelled = DataLoader(TrainData(), BATCH, num_workers=1)
    unlabelled = DataLoader(TrainData(64, seed=6), 2 * BATCH, num_workers=1)
    quick, whole = DataLoader(EvalData(4), 2), DataLoader(EvalData(12), 3)
    losses = []
    for _ in range(3):
        for number, (batch, (more, _)) in enumerate(zip(labelled, unlabelled, strict=True)):
            loss = loss_of(model, batch) + model(more).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if number == 3:
                losses += evaluate(model, quick)
        losses += evaluate(model, whole)
    told(losses, model)


@torch.inference_mode()
def evaluate(model, loader):
    """The losses of a loader's batches."""
    losses = [loss_of(model, batch) for batch in loader]
    slowly()
    return losses


def iterable():
    """A stream that does not know its length, from two workers."""
    model = net()
    losses = train(model, DataLoader(Stream(), BATCH, num_workers=2), 3, sgd(model))
    told(losses, model)


def persistent():
    """Workers that outlive the epoch, of the training and of the evaluation."""
    model = net()
    optimizer = sgd(model)
    kept = {"num_workers": 1, "persistent_workers": True}
    loader = DataLoader(TrainData(), BATCH, shuffle=True, **kept)
    evaluation = DataLoader(EvalData(8), BATCH, **kept)
    losses = []
    for _ in range(3):
        losses += train(model, loader, 1, optimizer)
        losses += evaluate(model, evaluation)
    told(losses, model)


def prefetched(loader, depth=2):
    """A loader's batches, which a thread of its own fetches ahead."""
    ready = queue.Queue(depth)

    def fetch():
        for batch in loader:
            ready.put(batch)
        ready.put(None)

    threading.Thread(target=fetch, daemon=True).start()
    while (batch := ready.get()) is not None:
        yield batch


def prefetcher():
    """A background thread fetches the batches; evaluation fetches its own."""
    model = net()
    optimizer = sgd(model)
    loader, evaluation = DataLoader(TrainData(), BATCH), DataLoader(EvalData(8), BATCH)
    losses = []
    for _ in range(3):
        losses += train(model, prefetched(loader), 1, optimizer)
        losses += evaluate(model, evaluation)
    told(losses, model)


def lbfgs():
    """An optimizer that runs forward and backward itself, several times a step."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    loader = DataLoader(TrainData(), BATCH)
    losses = []
    for _ in range(2):
        for batch in loader:

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                losses.append(loss.detach())
                return loss

            optimizer.step(closure)
    told(losses, model)


def schedulefree():
    """Optimizers without a schedule: one of its own, and one that wraps another."""
    from schedulefree import AdamWScheduleFree, ScheduleFreeWrapper

    model, other = net(), net()
    optimizer = AdamWScheduleFree(model.parameters(), lr=0.01)
    optimizer.train()
    loader = DataLoader(TrainData(48), BATCH)
    losses = train(model, loader, 1, optimizer)
    optimizer.eval()
    losses += evaluate(model, DataLoader(EvalData(8), BATCH))
    wrapped = ScheduleFreeWrapper(torch.optim.SGD(other.parameters(), lr=0.05), momentum=0.9)
    wrapped.train()
    losses += train(other, loader, 1, wrapped)
    told(losses, model, other)


def torchvision():
    """Images made by torchvision, its transforms in the workers, and mix-up of whole batches."""
    from torch.utils.data import default_collate
    from torchvision.datasets import FakeData
    from torchvision.transforms import v2

    mix = v2.MixUp(num_classes=3)
    change = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, True)])
    data = FakeData(48, (3, 8, 8), num_classes=3, transform=change)
    torch.manual_seed(11)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 3))
    loader = DataLoader(
        data, BATCH, num_workers=2, collate_fn=lambda rows: mix(*default_collate(rows))
    )
    told(train(model, loader, 2, sgd(model)), model)


def webdataset():
    """Samples from a tar file, in WebDataset's own loader."""
    import tempfile
    from pathlib import Path

    import webdataset as wds

    data, model = TrainData(48), net()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "train-0.tar")
        with wds.TarWriter(path) as tar:
            for number, (x, y) in enumerate(data):
                tar.write({"__key__": f"{number:04}", "x.npy": x.numpy(), "y.cls": int(y)})
        rows = wds.WebDataset(path, shardshuffle=False).decode().to_tuple("x.npy", "y.cls")
        loader = wds.WebLoader(rows.batched(BATCH), batch_size=None, num_workers=1)
        batches = loader.with_length(12)
        losses = train(model, batches, 2, sgd(model))
    told(losses, model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(3)
    globals()[sys.argv[1]]()
