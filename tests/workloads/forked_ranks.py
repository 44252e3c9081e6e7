"""Runs workloads as real ranks, forked from one process that has imported torch already.

Importing torch takes seconds; a fork starts at once. Each rank has torchrun's environment, a real
gloo process group, and a runtime such as torchtop puts into a rank, which keeps what it is told.

Usage: ``forked_ranks.py PLAN``, with PLAN a JSON list of {"module", "argv", "ranks"}. Prints a JSON
list with, for each, a list of {"status", "losses", "facts", "gradients", "output"} by rank.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Runtime(ModuleType):
    """Keeps the scalars, the facts and, at each optimizer step, a digest of the gradients."""

    def __init__(self) -> None:
        super().__init__("_torchtop_runtime")
        self.losses: list[float] = []
        self.facts: dict[str, Any] = {}
        self.gradients: list[float] = []
        register_optimizer_step_pre_hook(self._digest)

    def log(self, scalars: dict[str, torch.Tensor]) -> None:
        """As torchtop's, but reads at once."""
        assert not any(value.requires_grad for value in scalars.values())
        self.losses.append(scalars["loss"].item())

    def tell(self, facts: dict[str, Any]) -> None:
        """Keep what the script tells."""
        self.facts |= facts

    def _digest(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.gradients.append(sum(p.grad.double().abs().sum().item() for p in parameters))


def rank_main(module: str, argv: list[str], output: Path) -> None:
    """Run the script in this process, which ends with its status."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    runtime = sys.modules["_torchtop_runtime"] = Runtime()
    sys.argv = [module, *argv]
    torch.seed()  # so that two runs are equal only if the script makes them so
    status: Any = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    kept = {name: getattr(runtime, name) for name in ("losses", "facts", "gradients")}
    output.with_suffix(".json").write_text(json.dumps({"status": status, **kept}))
    sys.stdout.flush()
    os._exit(0)


def run(module: str, argv: list[str], ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Run one workload on so many ranks and wait for them."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            own = {**common, "RANK": rank, "LOCAL_RANK": rank}
            os.environ.update({key: str(value) for key, value in own.items()})
            rank_main(module, argv, folder / f"{rank}.log")
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return [
        {
            **json.loads((folder / f"{rank}.json").read_text()),
            "output": (folder / f"{rank}.log").read_text(),
        }
        for rank in range(ranks)
    ]


def main() -> None:
    """Run the plan."""
    torch.set_num_threads(1)
    importlib.import_module("torchvision.models")
    results = []
    for item in json.loads(sys.argv[1]):
        with tempfile.TemporaryDirectory() as folder:
            results.append(run(item["module"], item["argv"], item["ranks"], Path(folder)))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
