"""Pieces of training scripts that the faults are provoked in."""

from __future__ import annotations

from collections.abc import Callable

from launch.supervised import Run

Start = Callable[..., Run]
"""The fixture `run`: starts a script as a session."""

DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train_step():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
"""A model that two ranks train together, 40 steps a second."""

LOADING = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(4)
loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2)
"""
"""A data loader with two workers in each rank."""
