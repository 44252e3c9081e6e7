"""A long run watched over a pseudo-terminal: what grows, and whether a step is lost or repeated.

Two ranks train a small model with DDP over gloo, 50 steps a second, with the real viewer attached.
Prints one line of JSON: growth of the viewer's memory over the last two thirds, the size of each
file beside its bound for a day, and the steps on record against the script's own count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tui"), str(ROOT / "tests")]

from app.pty_child import Child  # noqa: E402
from torchtop.launch.spec import LaunchSpec  # noqa: E402
from torchtop.launch.start import start_session  # noqa: E402
from torchtop.session.paths import SessionPaths, liveness, request_stop  # noqa: E402
from torchtop.session.records import is_recorded  # noqa: E402
from torchtop.session.tail import Tail  # noqa: E402

RANKS, STEPS_PER_S = 2, 50
SAMPLE_S = 5.0
END_LIMIT_S = 120.0
DAY_S = 86_400

TRAINING = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.set_num_threads(1)
steps, pace = int(sys.argv[1]), float(sys.argv[2])
model = DistributedDataParallel(torch.nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.ones(20000, 32), batch_size=4)
done, due = 0, time.monotonic()
while done < steps:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        done += 1
        print("step", done)
        due += pace
        time.sleep(max(0.0, due - time.monotonic()))
        if done == steps:
            break
with open(os.path.join(os.environ["TORCHTOP_SESSION_DIR"], f"count-{dist.get_rank()}"), "w") as out:
    json.dump(done, out)
dist.destroy_process_group()
"""

VIEWER = """
import sys
from torchtop.__main__ import main
sys.argv[0] = "torchtop"
raise SystemExit(main())
"""


def memory_bytes(pid: int) -> int | None:
    """Resident memory of a process; None when it has gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def watch(paths: SessionPaths, seconds: float) -> tuple[list[tuple[float, int]], int | None]:
    """Attach a viewer until the run has ended; its memory over time, and its exit status."""
    path = os.pathsep.join(str(ROOT / part) for part in ("tui", "workloads"))
    viewer = Child(VIEWER, "attach", paths.id, size=(120, 40), PYTHONPATH=path)
    samples: list[tuple[float, int]] = []
    began = time.monotonic()
    try:
        while liveness(paths) == "live" and time.monotonic() - began < seconds + END_LIMIT_S:
            viewer.read(SAMPLE_S)
            used = memory_bytes(viewer.pid)
            if used is None:
                break
            samples.append((time.monotonic() - began, used))
        os.write(viewer.fd, b"q")
        return samples, viewer.wait(30.0)
    finally:
        viewer.close()


def growth_bytes(samples: Sequence[tuple[float, int]]) -> float:
    """How much the memory grew over the last two thirds, ends smoothed over a tenth of them."""
    late = [used for at, used in samples if at >= samples[-1][0] / 3]
    tenth = max(1, len(late) // 10)
    return statistics.median(late[-tenth:]) - statistics.median(late[:tenth])


def steps_on_record(file: Path) -> dict[str, Any]:
    """The steps that a rank's totals count and its ``steps`` records hold, against each other."""
    counted = repeated = gaps = missing = dropped = 0
    expected_from: int | None = None
    recorded: list[int] = []
    stride, pending = 1, []
    for record in Tail(file).poll():
        if record["kind"] == "steps":
            stride, pending = record["stride"], list(record["step"])
            recorded += pending
        elif record["kind"] == "totals":
            # The first step has no beginning: counting begins with its end.
            gap = record["from_step"] - (1 if expected_from is None else expected_from)
            gaps, repeated = gaps + max(0, gap), repeated + max(0, -gap)
            expected_from = record["to_step"]
            counted += record["steps"]
            span = range(record["from_step"], record["to_step"])
            missing += sum(is_recorded(step, stride) for step in span) - len(pending)
            pending = []
        elif record["kind"] == "probe":
            dropped = record["dropped"]
    return {
        "counted": counted,
        "lost": gaps,
        "repeated": repeated + len(recorded) - len(set(recorded)),
        "recorded": len(recorded),
        "missing": missing,
        "dropped": dropped,
    }


def ranks_of(paths: SessionPaths) -> Iterator[tuple[int, dict[str, Any]]]:
    """What each rank has on record, with the count that its script kept."""
    for file in sorted(paths.ranks.glob("*.jsonl")):
        if not file.name.endswith(".process.jsonl"):
            rank = int(file.name.split("-")[0])
            own = paths.root / f"count-{rank}"
            script = int(own.read_text(encoding="ascii")) if own.exists() else None
            told = steps_on_record(file)
            # The first step has no beginning, and is not counted.
            uncounted = None if script is None else script - 1 - told["counted"]
            yield rank, {"script_steps": script, **told, "uncounted": uncounted}


GROUPS = {
    "ranks": "ranks/*[0-9].jsonl",
    "rank processes": "ranks/*.process.jsonl",
    "stacks": "ranks/*.stacks",
    "logs": "logs/*/*/*/*.log",
    "torchrun log": "logs/torchrun.log",
    "supervisor log": "supervisor.log",
    "events": "nodes/*/events.jsonl",
    "devices": "nodes/*/devices.jsonl",
    "analysis": "analysis.jsonl",
    "history": "history.jsonl",
    "summary": "summary.*",
}
"""The files of a session that grow, by what they are."""


def allowed_kb(seconds: float) -> float:
    """What a rank's file may have come to: 100 MB in a day, of which 10 at once."""
    return 10_000.0 + seconds


def sizes(paths: SessionPaths, seconds: float) -> dict[str, float]:
    """The largest file of each group, in kilobytes, and what it comes to in a day, in megabytes."""
    found = {}
    for name, pattern in GROUPS.items():
        size = max((file.stat().st_size for file in paths.root.glob(pattern)), default=0)
        found[f"{name} kb"] = round(size / 1e3, 1)
        found[f"{name} mb_a_day"] = round(size / seconds * DAY_S / 1e6, 1)
    found["ranks kb over"] = max(0.0, found["ranks kb"] - allowed_kb(seconds))
    return found


def soak(minutes: float) -> dict[str, Any]:
    """Run it all in the state directory of the environment."""
    seconds = minutes * 60
    folder = Path(os.environ["TORCHTOP_HOME"])
    script = folder / "train.py"
    script.write_text(TRAINING, encoding="utf-8")
    arguments = (str(round(seconds * STEPS_PER_S)), str(1 / STEPS_PER_S))
    spec = LaunchSpec("soak", "train.py", "script", str(script), arguments, nproc=RANKS)
    paths = start_session(spec)
    began = time.monotonic()
    try:
        samples, status = watch(paths, seconds)
    finally:
        if liveness(paths) == "live":
            request_stop(paths, "kill", "soak")
        while liveness(paths) == "live":
            time.sleep(0.2)
    ran_s = time.monotonic() - began
    if not samples:
        raise SystemExit("the viewer did not start")
    used = [value for _, value in samples]
    return {
        "minutes": round(ran_s / 60, 2),
        "viewer exit": status,
        "viewer growth_mb": round(growth_bytes(samples) / 1e6, 2),
        "viewer mb": [round(value / 1e6, 1) for value in (used[0], used[-1])],
        **{
            f"rank {rank} {name}": value
            for rank, told in ranks_of(paths)
            for name, value in told.items()
        },
        **sizes(paths, ran_s),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to train (30)")
    parser.add_argument("--keep", metavar="DIR", help="state directory to use, and to leave there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(options.keep or folder)
        home.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHTOP_HOME"] = str(home)
        print(json.dumps(soak(options.minutes)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
