"""``make bench``: what torchtop itself costs, each figure beside its limit.

``make bench ARGS="viewer sampler"`` picks some, and what begins with dashes goes to the script that
it stands behind: ``make bench ARGS="soak --minutes 30"``. Machines are noisy: a figure over its
limit is marked, and only ratios of alternating runs are worth comparing between machines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMITS: dict[str, dict[str, float]] = {
    "viewer": {"first_frame_ratio": 2.5, "bytes_per_s": 8192.0, "cpu_percent": 3.0},
    "sampler": {"cpu_percent": 1.0},
    "replay": {"attach_s": 1.5, "open_at_end_s": 1.5, "jump_s": 1.5},
    "overhead": {"gpu-bound ratio": 1.003, "launch-bound ratio": 1.01},
    "any_script": {
        f"{script} ratio": 1.01
        for script in ("hf_trainer", "lightning_fit", "accelerate_loop", "compiled_loop")
    },
    "soak": {
        "viewer growth_mb": 5.0,
        "ranks kb over": 0.0,
        **{
            f"rank {rank} {what}": 0.0
            for rank in (0, 1)
            for what in ("uncounted", "lost", "repeated", "missing", "dropped")
        },
    },
}
"""Limits of figures by script; those of the overhead are meant for two GPUs."""

BY_NAME_ALONE = ("any_script", "soak")
"""What takes half an hour, or other libraries."""


def measure(name: str, options: list[str]) -> dict[str, Any]:
    """Run one script of this folder; it prints lines of JSON, one a job where it has several."""
    path = os.pathsep.join(str(ROOT / part) for part in ("tui", "workloads", "tests"))
    done = subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *options],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answer = json.loads(line)
            job = answer.pop("job", "")
            figures.update({f"{job} {key}".strip(): value for key, value in answer.items()})
    return figures


def shown(value: Any) -> str:
    """A figure as text: a number to three places, an interval as its two ends."""
    if isinstance(value, list):
        return " to ".join(map(shown, value))
    return f"{value:,.3f}" if isinstance(value, (int, float)) else str(value)


def asked(words: list[str]) -> list[tuple[str, list[str]]]:
    """The scripts to run, each with its own options."""
    wanted: list[tuple[str, list[str]]] = []
    for word in words:
        if wanted and (word.startswith("-") or (wanted[-1][1] and word not in LIMITS)):
            wanted[-1][1].append(word)
        else:
            wanted.append((word, []))
    return wanted or [(name, []) for name in LIMITS if name not in BY_NAME_ALONE]


def main() -> int:
    """Measure all, or what was named; status 1 where something could not be measured."""
    for name, options in asked(sys.argv[1:]):
        if name not in LIMITS:
            print(f"bench: there is no {name}; there are {', '.join(LIMITS)}", file=sys.stderr)
            return 2
        print(f"{name}: measuring", file=sys.stderr, flush=True)
        try:
            figures = measure(name, options)
        except subprocess.CalledProcessError as error:
            print(f"bench: {name} failed with status {error.returncode}", file=sys.stderr)
            return 1
        for key, value in figures.items():
            limit = LIMITS[name].get(key)
            told = "" if limit is None else f"  at most {limit:g}"
            mark = "  OVER" if limit is not None and float(value) > limit else ""
            print(f"{name:8} {key:28} {shown(value):>14}{told}{mark}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
