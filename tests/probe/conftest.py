"""The probe in this very process, on a real torch, and taken out again after each test."""

from __future__ import annotations

import atexit
import gc
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Armed:
    """A probe whose hooks are in place, and what it writes."""

    probe: Any
    directory: Path
    reasons: list[str] = field(default_factory=list)

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """End the recording, and read it."""
        self.probe.finish()
        files = sorted(self.directory.glob("*.jsonl"))
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        records = [json.loads(line) for line in lines]
        return [record for record in records if kind in (None, record["kind"])]

    def rows(self) -> list[dict[str, Any]]:
        """The recorded steps, one dict each."""
        rows = []
        for record in self.records("steps"):
            names = [name for name, values in record.items() if isinstance(values, list)]
            columns = [record[name] for name in names]
            rows += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return rows

    def facts(self, subject: str) -> list[dict[str, Any]]:
        """The facts of one subject."""
        return [record for record in self.records("facts") if record["subject"] == subject]


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Armed]:
    torch = pytest.importorskip("torch")
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    from torchtop.probe import hooks

    # monkeypatch puts back what install() replaces.
    graph, ddp = torch.cuda.CUDAGraph, torch.nn.parallel.DistributedDataParallel
    for owner, name in (
        (dataloader._BaseDataLoaderIter, "__next__"),
        (torch.autograd, "backward"),
        (torch.amp.GradScaler, "step"),
        (torch, "save"),
        (os, "_exit"),
        (ddp, "__init__"),
        (graph, "capture_begin"),
        (graph, "capture_end"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    before = dict(optimizer._global_optimizer_pre_hooks)
    after = dict(optimizer._global_optimizer_post_hooks)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    collecting = list(gc.callbacks)
    directory = tmp_path / "ranks"
    directory.mkdir()
    armed = Armed(None, directory)
    armed.probe = hooks.install(torch, directory, armed.reasons.append)
    yield armed
    armed.probe.finish()
    armed.probe.disable("the test is over")
    gc.callbacks[:] = collecting
    atexit.unregister(armed.probe.finish)
    for held, kept in (
        (optimizer._global_optimizer_pre_hooks, before),
        (optimizer._global_optimizer_post_hooks, after),
    ):
        held.clear()
        held.update(kept)
