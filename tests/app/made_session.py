"""Made-up session directories with realistic numbers, written through the real `Appender`.

``make(path, CASES["slow-loader"])`` writes one at once, its records one second apart from now on;
``python -m app.made_session slow-loader PATH`` writes one live, a second a second.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchtop.session.paths import SessionPaths, write_json
from torchtop.session.records import PHASES, SCHEMA, Appender, boot_id

GIB = 2**30
TRACEBACK = """Traceback (most recent call last):
  File "/home/ana/train/train.py", line 88, in <module>
    main()
  File "/home/ana/train/train.py", line 61, in main
    loss = criterion(model(images), labels)
  File "/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _call_impl
    return forward_call(*args, **kwargs)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 is full.
"""
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07[bold red]markup[/] \u202egnp.exe "
    "日本語テスト \U0001f469\u200d\U0001f469\u200d\U0001f467 \ud83d e\u0301"
)


@dataclass(frozen=True)
class Case:
    """What the made session looks like.

    Attributes:
        gpus: GPUs of the host; ranks use the first `ranks` of them.
        phases: milliseconds a step on the frontier.
        skew: extra milliseconds by (rank, phase).
        busy: (util, sm, tensor) of the GPUs, 0..1.
    """

    name: str = "resnet50-cifar10"
    gpus: int = 2
    ranks: int = 2
    device: str = "cuda"
    phases: dict[str, float] = field(default_factory=dict)
    skew: dict[tuple[int, str], float] = field(default_factory=dict)
    busy: tuple[float, float, float] = (0.97, 0.62, 0.31)
    kind: str = "COMPUTE-BOUND"
    severity: str = "ok"
    share: float | None = None
    rank: int | None = None
    phase: str | None = None
    gain_bound: float | None = None
    headline: str = ""
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    batch: int = 256
    tokens: int | None = None
    workers: int = 4
    ready: int = 8
    worker_cpu: float = 31.0
    total_steps: int | None = 20_000
    synthetic: bool = True
    cores: int = 32
    gpm: bool = True
    throttle: tuple[str, ...] = ()
    others: bool = False
    warm_up_s: int = 3
    verdict_after_s: int = 8
    end: str | None = None
    exit: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    nvml_error: str | None = None
    nodes: int = 1
    silent_rank: int | None = None
    findings: tuple[dict[str, Any], ...] = ()
    bad_line: bool = False


_DATA = Case(
    name="slow-loader",
    phases={"data": 45.2, "forward": 22.1, "backward": 41.0, "exposed_comm": 3.1,
            "optimizer": 5.2, "other": 2.0},
    busy=(0.58, 0.34, 0.12), kind="DATA", severity="critical", share=0.381, gain_bound=1.62,
    headline="Waiting for data: 38 % of each step.",
    evidence=(
        "GPU idle before each batch for 45.2 ms of 119 ms, on every rank",
        "the ready queue was empty at 74 % of fetches",
        "4 workers a rank at 99 % CPU; 20 of 32 cores idle",
    ),
    advice=("raise workers from 4 to 10: cores are free", "decode less: store images resized"),
    ready=0, worker_cpu=99.0,
)  # fmt: skip
_HEALTHY = Case(
    name="compute-heavy",
    phases={"data": 0.1, "forward": 22.5, "backward": 33.6, "exposed_comm": 0.45,
            "optimizer": 0.9, "other": 0.7},
    busy=(0.99, 0.91, 0.58),
    headline="Healthy: the GPUs compute 96 % of each step.",
    evidence=("SM active 91 %, tensor cores 58 %", "the GPU runs 27 ms behind the host"),
    advice=("nothing to fix; larger gains need faster kernels or more GPUs",),
)  # fmt: skip
_THROTTLED = {
    "kind": "THROTTLED", "severity": "critical", "rank": 1, "share": None,
    "headline": "GPU 1 is slowed down by hw_thermal_slowdown: 1200 of 1980 MHz",
    "evidence": ["the GPU of rank 1 runs at 1200 MHz, at 88 °C; held down in 90 % of the seconds"],
    "advice": ["check the cooling: air flow, fans, room temperature"],
}  # fmt: skip
_CONTENTION = {
    "kind": "CONTENTION", "severity": "note", "rank": 0, "share": None,
    "headline": "GPU 0 is shared with another process",
    "evidence": ["on GPU 0 also: jupyter (pid 77) with 3.0 GB"],
    "advice": ["end it, or use another GPU (--gpu-ids)"],
}  # fmt: skip
CASES: dict[str, Case] = {
    "slow-loader": _DATA,
    "healthy": _HEALTHY,
    "comm-heavy": Case(
        name="comm-heavy",
        phases={"data": 0.1, "forward": 1.3, "backward": 4.2, "exposed_comm": 7.6,
                "optimizer": 2.6, "other": 0.5},
        busy=(1.0, 0.44, 0.22), kind="COMM", severity="critical", share=0.466, gain_bound=1.87,
        headline="Communication is not hidden: 47 % of each step.",
        evidence=("7.6 ms exposed of 16.3 ms; backward computes 4.2 ms",
                  "2.15 GB of gradients in 84 buckets, no accumulation"),
        advice=("accumulate gradients over 4 micro-batches with no_sync()",
                "gradient_as_bucket_view=True saves the copy-back"),
    ),
    "straggler": Case(
        name="straggler", gpus=8, ranks=8,
        phases={"data": 0.2, "forward": 18.0, "backward": 37.4, "exposed_comm": 0.6,
                "optimizer": 31.0, "other": 0.8},
        skew={(5, "optimizer"): 29.0}, kind="STRAGGLER", severity="critical", share=0.33,
        rank=5, phase="optimizer", gain_bound=1.49,
        headline="Rank 5 is slow in its optimizer: the others wait 29 ms of each step.",
        evidence=("rank 5 optimizer 31.0 ms, median of the others 2.0 ms",
                  "the other 7 ranks wait 28.8 to 29.1 ms in communication"),
        advice=("look at what rank 5 does around optimizer.step()",
                "its host is on NUMA node 1, its GPU on node 0"),
        busy=(0.98, 0.55, 0.3),
    ),
    "launch": Case(
        name="tiny-kernels", kind="LAUNCH", severity="warn", share=0.17, gain_bound=1.2,
        phases={"data": 0.1, "forward": 5.5, "backward": 14.9, "exposed_comm": 0.4,
                "optimizer": 1.1}, busy=(0.55, 0.08, 0.01),
        headline="The host cannot launch kernels fast enough.",
        evidence=("lag 0.1 ms at the end of forward", "SM active 8 % at utilization 55 %"),
        advice=("torch.compile(mode='reduce-overhead') or a larger batch",),
    ),
    "undecided": Case(
        name="resnet50-cifar10", kind="UNDECIDED", severity="unknown",
        phases={"data": 1.4, "forward": 9.0, "backward": 11.8, "exposed_comm": 1.6,
                "optimizer": 0.9}, busy=(0.66, 0.22, 0.02),
        headline="Nothing stands out: no phase explains more than 10 % of lost time.",
        evidence=("lag 0.9 ms forward, 4.1 ms backward: neither starved nor far behind",
                  "data 6 %, exposed communication 7 %"),
        advice=("a longer window may decide: let it run for a minute",),
    ),
    "cpu": Case(
        name="resnet50-cifar10", gpus=0, device="cpu", batch=16, cores=2, total_steps=30,
        phases={"data": 3.0, "forward": 310.0, "backward": 640.0, "exposed_comm": 12.0,
                "optimizer": 22.0, "other": 4.0},
        headline="Healthy: the CPUs compute 97 % of each step.",
        nvml_error="NVML library not found: no NVIDIA driver on this machine",
    ),
    "gpt": replace(_HEALTHY, name="gpt2-small", gpus=4, ranks=4, tokens=262_144, batch=256),
    "eight": replace(
        _DATA, gpus=8, ranks=8, throttle=("sw_power_cap",), others=True, gpm=True, cores=128
    ),
    "sixteen": replace(_HEALTHY, gpus=16, ranks=16, cores=192, nodes=2),
    "old-gpus": replace(_DATA, gpm=False),
    "failed": replace(
        _HEALTHY, end="failed",
        exit={"cause": "out_of_memory", "rank": 1, "code": 1, "signal": None,
              "message": "CUDA out of memory. Tried to allocate 2.25 GiB.",
              "traceback": TRACEBACK, "log_tail": TRACEBACK.splitlines()[-4:]},
    ),
    "done": replace(
        _HEALTHY, end="done",
        exit={"cause": "completed", "rank": None, "code": 0, "signal": None, "message": ""},
    ),
    "hung": replace(_HEALTHY, silent_rank=1),
    "sync": replace(
        _HEALTHY, name="sync-every-step", kind="SYNC", severity="warn", share=0.14, gain_bound=1.16,
        phase="other", headline="The host waits for its GPU between steps, losing 14 %",
        evidence=("loss.item() at train.py:88, 1 a step",),
    ),
    "warming": replace(_HEALTHY, warm_up_s=10**6),
    "starting": replace(_HEALTHY, warm_up_s=10**9),
    "findings": replace(_DATA, findings=(_THROTTLED, _CONTENTION)),
    "hostile": replace(
        _DATA, name=HOSTILE + "n" * 300, headline=HOSTILE, evidence=(HOSTILE * 20, "[link=x]y[/]"),
        advice=(HOSTILE,), text=HOSTILE, others=True, bad_line=True,
        findings=({"kind": HOSTILE, "severity": HOSTILE, "headline": HOSTILE,
                   "evidence": HOSTILE, "advice": [HOSTILE, None]}, {}),
    ),
}  # fmt: skip


class MadeSession:
    """Writes one case, a second at a time.

    Args:
        root: the session directory, created.
        case: what it looks like.
        begin_ns: monotonic time of its start.
    """

    def __init__(self, root: Path, case: Case, begin_ns: int | None = None) -> None:
        self.case, self.paths = case, SessionPaths(root)
        self.random = random.Random(7)
        self.begin_ns = time.monotonic_ns() if begin_ns is None else begin_ns
        self.second = 0
        self.steps = 0.0
        self.hosts = [f"gpu-node-{i}" for i in range(case.nodes)]
        for folder in (root, self.paths.ranks, self.paths.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_meta()
        self.events = self._appender_of_node(0, "events.jsonl", "supervisor")
        self.devices = [self._devices(i) for i in range(case.nodes)]
        self.analysis = Appender(self.paths.analysis, "analyst")
        self.history = Appender(self.paths.history, "analyst")
        self.ranks: list[Appender] = []
        self._rank_pids = [40_000 + r for r in range(case.ranks)]

    def _write_meta(self) -> None:
        case = self.case
        write_json(
            self.paths.meta,
            {
                "schema": SCHEMA, "id": self.paths.id, "name": case.name, "workload": case.name,
                "source": "builtin", "argv": [case.name], "device": case.device,
                "options": {"batch": case.batch, "workers": case.workers, "amp": False},
                "nproc": case.ranks, "python": "/home/ana/venv/bin/python",
                "cwd": "/home/ana/train",
                "started_at": "2026-11-30T14:02:11Z", "wall_s": time.time(), "host": self.hosts[0],
                "steps": case.total_steps, "duration_s": None,
                "versions": {"torchtop": "0.1.0", "torch": "2.14.1", "cuda": "13.0"},
            },
        )  # fmt: skip

    def _node(self, index: int) -> Path:
        folder = self.paths.root / "nodes" / self.hosts[index]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _appender_of_node(self, index: int, name: str, role: str, **facts: Any) -> Appender:
        return Appender(self._node(index) / name, role, **facts)

    def _devices(self, node: int) -> Appender:
        case = self.case
        share = case.gpus // case.nodes
        gpus = [
            {
                "index": i, "uuid": f"GPU-{node}-{i}", "name": "NVIDIA H200" + case.text,
                "memory_total_bytes": 139.8 * GIB, "power_limit_w": 700, "sm_clock_max_mhz": 1980,
                "gpm": case.gpm, "nvlink_links": 18, "pci": f"0000:{i:02x}:00.0",
            }
            for i in range(share)
        ]  # fmt: skip
        return self._appender_of_node(
            node, "devices.jsonl", "sampler", driver="580.159.04" if share else None,
            nvml_error=case.nvml_error, gpus=gpus, cpu_count=case.cores,
            memory_total_bytes=256 * GIB, tick_s=1.0,
        )  # fmt: skip

    def now_ns(self) -> int:
        """The moment of the second that is written."""
        return self.begin_ns + self.second * 1_000_000_000

    def tick(self) -> None:
        """Write the next second."""
        self.second += 1
        second, case = self.second, self.case
        now = self.now_ns()
        if second == 1:
            self.events.write("process", now, role="agent", process_pid=39_990, pid_start_ticks=1)
        if second == 2:
            for rank, pid in enumerate(self._rank_pids):
                self.events.write("process", now, role="rank", process_pid=pid, rank=rank)
        self._device_tick(now)
        self._logs(second)
        if case.warm_up_s == 10**9 or second < 3:
            return
        if not self.ranks:
            self.ranks = [self._open_rank(rank) for rank in range(case.ranks)]
        self._rank_tick(now)
        if second > 3:
            self._analyse(now)
        if second % 60 == 0:
            scalars = {"loss": {"first": 2.0, "last": self._loss(), "min": self._loss()}}
            samples = 60 * case.batch * 1000 / (self._step_ms() or 1000)
            self.history.write(
                "minute", now, from_ns=now - 60_000_000_000, to_ns=now, samples=samples,
                scalars=scalars, ranks=[], gpus=[], verdicts=[],
            )  # fmt: skip
        if case.bad_line and second == 5:
            with self.paths.analysis.open("ab") as file:
                file.write(b'{"kind": "analysis", "broken\n\x00\x00\xff\n[1,2]\n')

    def _open_rank(self, rank: int) -> Appender:
        case = self.case
        per_node = max(1, case.ranks // case.nodes)
        pid = self._rank_pids[rank]
        uuid = f"GPU-{rank // per_node}-{rank % per_node}" if case.device == "cuda" else None
        stem = f"{rank}-0-{pid}"
        process = Appender(
            self.paths.ranks / f"{stem}.process.jsonl", "process", rank=rank, local_rank=rank,
            world_size=case.ranks, attempt=0, argv=["train.py"], python="3.11.7",
        )  # fmt: skip
        process.write("torch", self.now_ns(), version="2.14.1")
        process.close()
        made = Appender(
            self.paths.ranks / f"{stem}.jsonl", "rank", rank=rank, local_rank=rank,
            world_size=case.ranks, attempt=0, torch="2.14.1", backend="nccl",
            device={"type": case.device, "index": rank, "name": "NVIDIA H200", "uuid": uuid},
        )  # fmt: skip
        made.write(
            "facts", self.now_ns(), subject="loader", loader=0, workers=case.workers,
            prefetch_factor=2, pin_memory=True, persistent_workers=True,
            batch_size=case.batch // case.ranks, batches=390, dataset="CIFAR10" + case.text,
            worker_pids=[50_000 + rank * 100 + w for w in range(case.workers)],
            first_batch={"bytes": 1_573_888, "pinned": True, "samples": case.batch // case.ranks},
        )  # fmt: skip
        made.write(
            "facts", self.now_ns(), subject="script", synthetic_data=case.synthetic,
            total_steps=case.total_steps,
        )  # fmt: skip
        return made

    def _rank_tick(self, now: int) -> None:
        for rank, file in enumerate(self.ranks):
            silent = rank == self.case.silent_rank and self.second > 20
            marker_ns = now - (self.second - 20) * 1_000_000_000 if silent else now - 3_000_000
            file.write(
                "beat", now, marker="B0" if silent else "BC", marker_ns=marker_ns,
                step=int(self.steps), ready=max(0, self.case.ready - self.random.randrange(2)),
            )  # fmt: skip

    def _device_tick(self, now: int) -> None:
        for node, file in enumerate(self.devices):
            self._node_tick(node, file, now)

    def _node_tick(self, node: int, file: Appender, now: int) -> None:
        case, noise = self.case, self.random.uniform
        count = case.gpus // case.nodes
        live = self.second >= 3
        util, sm, tensor = case.busy if live else (0.0, 0.0, 0.0)
        wave = 0.06 * math.sin(self.second / 7)

        def column(level: float, spread: float, most: float = 1.0) -> list[float | None]:
            values = [level + wave * level + noise(-spread, spread) for _ in range(count)]
            return [round(max(0.0, min(most, v)), 3) for v in values]

        gpm = column if case.gpm else lambda *_: [None] * count
        link = [None] * count if not case.gpm else [round(noise(2e10, 3e10)) for _ in range(count)]
        cores = [round(min(100.0, abs(noise(2, 60))), 1) for _ in range(case.cores)]
        file.write(
            "tick", now,
            gpus={
                "util_percent": [round((v or 0) * 100) for v in column(util, 0.02)],
                "memory_used_bytes": [int((41.2 if live else 0.6) * GIB) + i for i in range(count)],
                "power_w": [round(120 + sm * 560 + noise(-9, 9)) for _ in range(count)],
                "temperature_c": [round(41 + sm * 30 + i % 4) for i in range(count)],
                "sm_clock_mhz": [1980 - 15 * (i % 3) for i in range(count)],
                "throttle": [list(case.throttle) if i == 1 else [] for i in range(count)],
                "sm_active": gpm(sm, 0.03), "sm_occupancy": gpm(sm / 2, 0.02),
                "tensor_active": gpm(tensor, 0.01), "dram_active": gpm(0.22, 0.02),
                "nvlink_tx_bytes_per_s": link, "nvlink_rx_bytes_per_s": link,
            },
            host={
                "cpu_percent": round(sum(cores) / len(cores), 1), "cpu_percent_per_core": cores,
                "load_1m": round(noise(8, 9), 2), "memory_used_bytes": int(38.4 * GIB),
                "disk_read_bytes_per_s": noise(1e6, 4e7), "disk_write_bytes_per_s": noise(0, 2e6),
                "net_rx_bytes_per_s": noise(1e3, 9e4), "net_tx_bytes_per_s": noise(1e3, 9e4),
            },
        )  # fmt: skip
        if self.second % 5 == 0 and node == 0:
            self._processes(file, now, count)

    def _processes(self, file: Appender, now: int, count: int) -> None:
        case = self.case
        gpus: list[list[dict[str, Any]]] = [
            [{"process_pid": self._rank_pids[i], "used_bytes": 40 * GIB, "name": "python"}]
            if i < case.ranks
            else []
            for i in range(count)
        ]
        if case.others and gpus:
            name = "jupyter" + case.text
            gpus[0].append({"process_pid": 77, "used_bytes": 3 * GIB, "name": name})
        ranks = [
            {
                "rank": rank, "process_pid": pid, "cpu_percent": 101.0, "rss_bytes": 3 * GIB,
                "workers": [
                    {"process_pid": 50_000 + rank * 100 + w, "rss_bytes": GIB,
                     "cpu_percent": case.worker_cpu + self.random.uniform(-3, 1)}
                    for w in range(case.workers)
                ],
            }
            for rank, pid in enumerate(self._rank_pids)
        ]  # fmt: skip
        file.write("processes", now, gpus=gpus, ranks=ranks)

    def _loss(self) -> float:
        return round(0.4 + 1.9 * math.exp(-self.steps / 900), 4)

    def _step_ms(self) -> float:
        return sum(self.case.phases.values())

    def _latencies(self, count: int) -> list[float]:
        """Near the mean; with starved loaders every fourth step takes four times the stall."""
        base = self._step_ms()
        data = self.case.phases.get("data", 0.0)
        values = []
        for i in range(count):
            burst = data * (3.0 if (int(self.steps) + i) % 4 == 0 else -1.0) if data > 5 else 0.0
            values.append(round(base + burst + abs(self.random.gauss(0, base * 0.02)), 2))
        return values

    def _analyse(self, now: int) -> None:
        case = self.case
        if case.silent_rank is not None and self.second > 20:
            return
        step_ms = self._step_ms() * (1 + self.random.uniform(-0.01, 0.01))
        rate = 1000 / step_ms
        recent = self._latencies(min(200, int(rate) or 1))
        self.steps += rate
        if case.warm_up_s == 10**6:
            self.steps = 6
        warming = self.second < 3 + case.warm_up_s
        scale = step_ms / self._step_ms()
        phases = {name: case.phases.get(name, 0.0) * scale for name in PHASES}
        total = sum(phases.values())
        ordered = sorted(recent)
        self.analysis.write(
            "analysis", now, step=int(self.steps) - 1, steps=int(self.steps), window=None,
            warming_up=warming,
            step_ms={"mean": total, "p50": ordered[len(ordered) // 2], "p95": ordered[-1] * 0.98,
                     "p99": ordered[-1], "max": ordered[-1] * 1.2},
            throughput={"samples_per_s": rate * case.batch, "steps_per_s": rate,
                        "tokens_per_s": rate * case.tokens if case.tokens else None},
            phases={n: {"ms": v, "share": v / total} for n, v in phases.items()},
            ranks=[self._rank_analysis(rank, phases) for rank in range(case.ranks)],
            verdict=None if warming or self.second < case.verdict_after_s else self._verdict(),
            findings=[] if warming else list(case.findings),
            candidates=[], recent_step_ms=recent, scalars={"loss": self._loss()},
            progress={"step": int(self.steps) - 1, "total_steps": case.total_steps,
                      "eta_s": case.total_steps and (case.total_steps - self.steps) / rate},
            probe={"cost_share": 0.0081, "dropped": 0, "disabled": None},
        )  # fmt: skip

    def _rank_analysis(self, rank: int, phases: dict[str, float]) -> dict[str, Any]:
        """A rank's own phases: who is not slowed waits in communication until all are done."""
        own = {n: v * (1 + self.random.uniform(-0.01, 0.01)) for n, v in phases.items()}
        wait = 0.0
        for (slow, phase), extra in self.case.skew.items():
            if rank != slow:
                own[phase] -= extra
                own["exposed_comm"] += extra
                wait += extra
        return {
            "rank": rank, "step": int(self.steps) - 1, "phases": own, "step_ms": sum(own.values()),
            "host_step_ms": sum(own.values()), "wait_ms": wait, "lag_ms": 11.0,
            "data_host_ms": phases["data"] * 0.8, "ready": self.case.ready, "marker": "BC",
            "marker_age_s": 0.02,
        }  # fmt: skip

    def _verdict(self) -> dict[str, Any]:
        case = self.case
        return {
            "kind": case.kind, "severity": case.severity, "share": case.share, "rank": case.rank,
            "phase": case.phase, "from_step": 40, "to_step": int(self.steps),
            "since_s": self.second - case.verdict_after_s, "gain_bound": case.gain_bound,
            "headline": case.headline, "evidence": list(case.evidence), "advice": list(case.advice),
        }  # fmt: skip

    def _logs(self, second: int) -> None:
        case = self.case
        for rank in range(case.ranks):
            folder = self.paths.logs / "run_x" / "attempt_0" / str(rank)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "stdout.log").open("ab") as out:
                if second == 2:
                    text = f"rank {rank}: model has 23,528,522 parameters\n"
                    out.write((text + case.text + "\n").encode("utf-8", "replace"))
                if second % 10 == 0 and rank == 0:
                    text = f"epoch {second // 40} step {int(self.steps)} loss {self._loss():.4f}\n"
                    out.write(text.encode())
            with (folder / "stderr.log").open("ab") as err:
                if rank == 0:
                    err.write(f"\r{second}%|{'#' * (second % 40):<40}| {second}/100".encode())

    def finish(self) -> None:
        """Write the exit, if the case has one."""
        case, now = self.case, self.now_ns() + 500_000_000
        if case.end is None:
            return
        for rank in range(case.ranks):
            first = rank == case.exit.get("rank")
            self.events.write(
                "rank_exit", now, rank=rank, process_pid=self._rank_pids[rank],
                code=case.exit.get("code") if first or not case.exit.get("code") else None,
                signal=None if first or not case.exit.get("code") else "SIGTERM",
            )  # fmt: skip
        self.events.write("exit", now + 1, **case.exit)
        self.events.write("end", now + 2, status=case.end)

    def close(self) -> None:
        """Close the files."""
        for file in (self.events, *self.devices, self.analysis, self.history, *self.ranks):
            file.close()


def make(root: Path, case: Case, seconds: int = 75, lock: bool = False) -> Path:
    """Write a whole session at once and return its directory.

    Args:
        root: the directory to make.
        case: what it looks like.
        seconds: how long it ran.
        lock: leave the lock file of a supervisor, unlocked: the session counts as lost.
    """
    made = MadeSession(root, case)
    for _ in range(seconds):
        made.tick()
    made.finish()
    made.close()
    if lock:
        (root / "nodes" / made.hosts[0] / "lock").touch()
    return root


def make_idle(root: Path, case: Case, seconds: int = 60) -> Path:
    """An idle directory: samples and nothing else."""
    made = MadeSession(root, case)
    for _ in range(seconds):
        made.second += 1
        made._device_tick(made.now_ns())
    made.close()
    for path in (made.paths.meta, made.paths.analysis, made.paths.history):
        path.unlink()
    (root / "nodes" / made.hosts[0] / "events.jsonl").unlink()
    return root


def live(root: Path, case: Case, go_on: Callable[[], bool]) -> None:
    """Write a session, a second a second, holding the supervisor's lock, while `go_on`."""
    made = MadeSession(root, case)
    lock = os.open(root / "nodes" / made.hosts[0] / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        while go_on():
            made.tick()
            time.sleep(max(0.0, (made.now_ns() - time.monotonic_ns()) / 1e9))
        made.finish()
    finally:
        made.close()
        os.close(lock)


if __name__ == "__main__":
    assert boot_id()
    live(Path(sys.argv[2]), CASES[sys.argv[1]], lambda: True)
