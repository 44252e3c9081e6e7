"""A made-up sweep over GPU counts, as ``sweep.json`` holds it."""

from __future__ import annotations

from typing import Any

from torchtop.session.records import PHASES


def spread(median: float, share: float = 0.02, runs: int = 3) -> dict[str, Any]:
    """A figure of several runs."""
    low, high = median * (1 - share / 2), median * (1 + share / 2)
    return {"median": median, "low": low, "high": high, "spread": share, "runs": runs}


def cell(gpus: int, rate: float, parts: dict[str, float] | None = None, **more: Any) -> Any:
    """A measured cell with a global batch of 256."""
    step_ms = 256e3 / rate
    loss = None
    if parts:
        loss = {
            "base": "g1",
            "reference": f"r{gpus}",
            "ideal_samples_per_s": 1250.0 * gpus,
            "measured_samples_per_s": rate,
            "lost_points": sum(parts.values()),
            "parts": [
                {"key": key, "label": key.replace("_", " "), "points": points, "ms": points / 10,
                 "why": f"measured: {points:.1f} points"}
                for key, points in parts.items()
            ],
        }  # fmt: skip
    return {
        "id": f"g{gpus}",
        "label": f"{gpus} GPU{'s' * (gpus > 1)}",
        "role": "asked",
        "axes": {"gpus": gpus},
        "gpus": gpus,
        "nproc": gpus,
        "status": "measured",
        "settled": True,
        "reason": None,
        "runs": [],
        "batch": 256,
        "batch_per_gpu": 256 // gpus,
        "samples_per_s": spread(rate),
        "tokens_per_s": None,
        "step_ms": spread(step_ms),
        "p50_ms": step_ms,
        "p95_ms": step_ms * 1.1,
        "base": "g1",
        "speedup": rate / 1250,
        "ideal": float(gpus),
        "efficiency": rate / 1250 / gpus,
        "verdict": {"kind": "COMM", "severity": "warn", "share": 0.12, "headline": "waits"},
        "phases": {phase: step_ms / len(PHASES) for phase in PHASES},
        "energy_j_per_1000_samples": 300.0 * gpus / rate * 1000,
        "memory_peak_bytes": 3 * 2**30,
        "first_steps_s": 4.2,
        "versions": {"torch": "2.11.0", "cuda": "13.0", "gpu": "NVIDIA H200", "compile": True},
        "loss": loss,
        **more,
    }


def sweep(*cells: Any, **more: Any) -> dict[str, Any]:
    """A sweep of cells; of 1, 2 and 4 GPUs where none are given."""
    four = {"exposed_comm": 6.0, "straggler": 2.0, "small_batch": 9.5, "launch": -2.5, "other": 1.0}
    two = {"exposed_comm": 3.0, "small_batch": 2.5, "other": 0.5}
    made = cells or (
        cell(1, 1250.0),
        cell(2, 2350.0, two),
        cell(4, 4200.0, four),
        {"id": "g8", "label": "8 GPUs", "role": "asked", "status": "skipped", "axes": {"gpus": 8},
         "reason": "this machine has 4 GPUs"},
        cell(1, 700.0, id="r4", label="1 GPU with batch 64", role="reference", axes={}),
    )  # fmt: skip
    return {
        "schema": 1,
        "id": "20261130-sweep",
        "workload": "resnet50-cifar10",
        "command": ["sweep", "resnet50-cifar10", "--gpus", "1,2,4"],
        "created_at": "2026-11-30T15:29:56+00:00",
        "status": "done",
        "host": "vm",
        "device": "cuda",
        "settings": {"steps": 200, "seconds": None, "warmup": 20, "repeats": 3, "spread": 0.02},
        "axes": [{"name": "gpus", "values": [1, 2, 4]}],
        "fixed": {"data": "memory"},
        "progress": {"runs_done": 9, "runs_left": 0, "eta_s": None},
        "cells": list(made),
        "notes": [],
        **more,
    }
