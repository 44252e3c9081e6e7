"""A script that tells torchtop more than it would see, where torchtop is there to be told."""

import argparse
import time

import torch
from torch.utils.data import DataLoader
from toy import BATCH, TrainData, loss_of, net, told

try:
    import torchtop
except ImportError:
    torchtop = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=9.0)
    parser.add_argument("--spoil", action="store_true", help="end with a loss that is no number")
    args = parser.parse_args()
    assert torchtop is not None
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TrainData(400), BATCH)
    until, losses = time.monotonic() + args.seconds, []
    torchtop.annotate("off we go")
    while time.monotonic() < until:
        for batch in loader:
            with torchtop.phase("augment"):
                time.sleep(0.01)
            if args.spoil and time.monotonic() > until - args.seconds / 2:
                batch[0].fill_(float("nan"))
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    torchtop.annotate("that was it")
    told(losses[:1], model)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
