"""Ended sessions made of a summary alone: what comparing them needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionPaths
from torchtop.session.records import PHASES

SAMPLES_A_STEP = 256
_SHARES = dict(zip(PHASES, (0.01, 0.3, 0.5, 0.1, 0.01, 0.05, 0.03), strict=True))


def summary(samples_per_s: float | None, **changes: Any) -> dict[str, Any]:
    """A summary of a run on two GPUs, all figures of which follow from its throughput."""
    step_ms = None if samples_per_s is None else SAMPLES_A_STEP / samples_per_s * 1e3
    phases = {
        name: {"ms": step_ms and step_ms * share, "share": step_ms and share}
        for name, share in _SHARES.items()
    }
    whole: dict[str, Any] = {
        "schema": 1,
        "name": "train",
        "workload": "resnet50-cifar10",
        "argv": ["-m", "torchtop_workloads.resnet50_cifar10"],
        "options": {"batch": 256},
        "synthetic_data": True,
        "status": "done",
        "started_at": "2026-11-30T15:29:56+00:00",
        "wall_s": 60.0,
        "exit": {"cause": "completed", "message": ""},
        "world_size": 2,
        "nodes": 1,
        "device": "cuda",
        "versions": {"torchtop": "0.1.0", "python": "3.12.3", "torch": "2.11.0", "cuda": "13.0"},
        "gpus": [_gpu(i) for i in range(2)],
        "steps": None if samples_per_s is None else 1010,
        "warmup_steps": 10,
        "recorded_steps": 1000,
        "step_ms": dict.fromkeys(("mean", "p50", "p95", "p99", "max"), step_ms),
        "throughput": {
            "samples_per_s": samples_per_s,
            "tokens_per_s": None,
            "steps_per_s": samples_per_s and samples_per_s / SAMPLES_A_STEP,
        },
        "phases": phases,
        "ranks": [
            {"rank": i, "gpu_uuid": f"GPU-{i}", "phases": phases, "memory_peak_bytes": 2**30}
            for i in range(2)
        ],
        "verdict": {"kind": "COMPUTE-BOUND", "share": None, "headline": "Healthy"},
        "verdicts": [],
        "findings": [],
        "probe": {"cost_share": 0.002, "dropped": 0, "disabled": None},
        "loss": {"first": 2.3, "last": 0.1, "min": 0.1},
    }
    return {**whole, **changes}


def _gpu(index: int) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "util_mean": 95.0,
        "sm_active_mean": 0.6,
        "memory_peak_bytes": 9 * 2**30,
        "power_mean_w": 500.0,
        "energy_j": 3000.0,
    }


def ended(root: Path, samples_per_s: float | None, wall_s: float = 0.0, **changes: Any) -> Path:
    """The directory of an ended session.

    Args:
        root: the directory; made.
        samples_per_s: its throughput; None for one that was never measured.
        wall_s: when it began (Unix time).
        **changes: fields of its summary that are otherwise.
    """
    root.mkdir(parents=True)
    told = summary(samples_per_s, id=root.name, **changes)
    meta = {
        "schema": 1,
        "id": root.name,
        "name": told["name"],
        "workload": told["workload"],
        "source": "builtin",
        "options": told["options"],
        "device": told["device"],
        "nproc": told["world_size"],
        "host": "vm",
        "wall_s": wall_s,
    }
    SessionPaths(root).meta.write_text(json.dumps(meta))
    SessionPaths(root).summary.write_text(json.dumps(told))
    return root
