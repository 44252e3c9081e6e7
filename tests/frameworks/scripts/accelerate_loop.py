"""A training loop in the manner of accelerate's own examples."""

import argparse
import hashlib
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from timing import Timing
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Made-up images with a class each."""

    def __init__(self, count, size, seed):
        made = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 3, size, size, generator=made)
        self.y = torch.randint(0, 10, (count,), generator=made)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class EvalImages(Images):
    """The same to evaluate with."""


def convolutions(width):
    """A small network for images of any size."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=16, help="of each rank and epoch")
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--sleep", type=float, default=0.0)
    return parser.parse_args()


def main():
    args = arguments()
    set_seed(7)
    accelerator = Accelerator(
        cpu=args.device == "cpu",
        gradient_accumulation_steps=args.accumulate,
        mixed_precision="no" if args.device == "cpu" else "bf16",
    )
    world = accelerator.num_processes
    model = convolutions(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Images(args.batches * args.batch * world, args.size, seed=1)
    model, optimizer, loader, evaluation = accelerator.prepare(
        model,
        optimizer,
        DataLoader(data, args.batch, shuffle=True, num_workers=args.workers),
        DataLoader(EvalImages(2 * args.batch * world, args.size, seed=2), args.batch),
    )
    timing = Timing()
    for _ in range(args.epochs):
        model.train()
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                timing.step(args.batch * args.accumulate * world)
        model.eval()
        right = 0
        for x, y in evaluation:
            with torch.no_grad():
                right += (model(x).argmax(-1) == y).sum()
        time.sleep(args.sleep)
        total = accelerator.reduce(right)
        accelerator.print(f"loss {loss.item():.9g}, right {total.item()}")
        with tempfile.TemporaryDirectory() as folder:
            accelerator.save(accelerator.get_state_dict(model), f"{folder}/model.pt")
    timing.tell()
    state = accelerator.unwrap_model(model).state_dict()
    flat = torch.cat([tensor.flatten().float().cpu() for tensor in state.values()])
    print("weights", hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16])
    accelerator.end_training()


if __name__ == "__main__":
    main()
