"""What the sampler costs: CPU time over half a minute beside ranks and workers that sleep.

Prints one line of JSON: the share of one core, in steady state and with its start-up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torchtop.launch import boot
from torchtop.session.records import Appender

WINDOW_S = 30.0
RANKS, WORKERS = 2, 4
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start_ranks(folder: Path) -> list[subprocess.Popen[bytes]]:
    """Processes that look like ranks with loader workers, and do nothing."""
    code = f"import os, time\nfor _ in range({WORKERS}):\n    if not os.fork(): time.sleep(3600)\n"
    ranks = []
    for rank in range(RANKS):
        process = subprocess.Popen(
            [sys.executable, "-c", code + "time.sleep(3600)"], start_new_session=True
        )
        ranks.append(process)
        facts = {"rank": rank, "local_rank": rank, "world_size": RANKS, "attempt": 0}
        path = folder / f"{rank}-0-{process.pid}.process.jsonl"
        header = Appender(path, "process", **facts)
        header.close()
        # The header names this process; the rank's own identity takes its place.
        record = json.loads(path.read_text())
        stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        record.update(pid=process.pid, pid_start_ticks=int(stat[19]))
        path.write_text(json.dumps(record) + "\n")
    return ranks


def main() -> int:
    """Measure once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ranks").mkdir()
        ranks = start_ranks(folder / "ranks")
        output = folder / "devices.jsonl"
        words = ["--output", str(output), "--ranks-dir", str(folder / "ranks")]
        sampler = subprocess.Popen(boot.command("torchtop.devices.sampler", *words))
        try:
            while not output.exists():
                time.sleep(0.05)
            time.sleep(2.0)
            started = cpu_s(sampler.pid)
            begin = time.monotonic()
            time.sleep(WINDOW_S)
            used, elapsed = cpu_s(sampler.pid) - started, time.monotonic() - begin
        finally:
            sampler.terminate()
            sampler.wait()
            for process in ranks:
                os.killpg(process.pid, 9)
                process.wait()
        seen = [json.loads(line) for line in output.read_text().splitlines()]
    workers = [len(r["workers"]) for s in seen if s["kind"] == "processes" for r in s["ranks"]]
    print(
        json.dumps(
            {
                "cpu_percent": round(100 * used / elapsed, 3),
                "start_cpu_s": round(started, 3),
                "gpus": len(seen[0]["gpus"]),
                "workers_seen": max(workers, default=0) * RANKS,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
