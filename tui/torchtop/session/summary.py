"""The session summary: built from the rest of the directory, so it can be rebuilt at any time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchtop.session import redact
from torchtop.session.failure import failure_of
from torchtop.session.folds import RankFold, fold_ranks
from torchtop.session.launches import last_launch, launch_of
from torchtop.session.paths import SessionPaths, describe, liveness, write_json
from torchtop.session.progress import progress
from torchtop.session.records import PHASES, SCHEMA, UNKNOWN, Record, bucket_microseconds
from torchtop.session.report import render_markdown
from torchtop.session.tail import Tail
from torchtop.session.versions import versions

_EDGE_BYTES = 512 << 10
"""Facts stand at the start of a rank's file and the last totals at its end: both ends are read."""

_TOO_SHORT = "Too short for a verdict: it ended before enough steps were measured"
_TOO_EARLY = "Too early for a verdict: not enough steps have been measured yet"

_OF_A_REQUEST = {"id", "requested_by"}

_MINUTE_SUMS = (
    *("steps", "warmup_steps", "step_us", "recorded", "samples", "tokens", "own_steps"),
)


def write_summary(paths: SessionPaths) -> dict[str, Any]:
    """Build ``summary.json`` and ``summary.md`` and write both.

    Returns:
        The summary.

    Raises:
        OSError: the directory cannot be written.
    """
    summary = build_summary(paths)
    write_json(paths.summary, summary)
    paths.summary_text.write_text(render_markdown(summary), encoding="utf-8")
    paths.summary_text.chmod(0o600)
    return summary


def build_summary(paths: SessionPaths) -> dict[str, Any]:
    """The summary of a session as it stands: shape in DESIGN section 4, units in the names.

    Durations in ``_ms`` and ``_s``; shares 0..1; null where something was not measured.
    """
    meta = describe(paths)
    nodes = [Tail(node.events).poll() for node in paths.nodes()]
    events = [record for node in nodes for record in node]
    status = _status(paths, events)
    if status == "lost":  # its supervisor told no end: the samplers were the last to see it
        last = [Tail(node.devices, _EDGE_BYTES).poll()[-1:] for node in paths.nodes()]
        nodes = [told + seen for told, seen in zip(nodes, last, strict=True)]
    told = fold_ranks(paths.ranks, _both_ends)
    ranks = [rank for rank in told if rank.header]
    history = Tail(paths.history).poll()
    minutes = [record for record in history if record["kind"] == "minute"]
    launch = last_launch([*(rank.header for rank in ranks), *minutes])
    minutes = [minute for minute in minutes if launch_of(minute) == launch]
    total = _sum_minutes(minutes)
    script = {k: v for rank in ranks for k, v in rank.facts.get("script", {}).items()}
    first = ranks[0].header if ranks else {}
    return {
        "schema": SCHEMA,
        "id": paths.id,
        "name": meta.get("name"),
        "workload": meta.get("workload"),
        "argv": redact.argv(meta.get("argv") or []),
        "options": redact.mapping(meta.get("options") or {}),
        "synthetic_data": bool(script.get("synthetic_data", False)),
        "status": status,
        "problem": meta.get("problem"),
        "started_at": meta.get("started_at"),
        "wall_s": _wall_s(nodes, meta, status),
        "exit": _exit(events),
        "failure": _failure(events, meta) if status == "failed" else None,
        "world_size": first.get("world_size") or meta.get("nproc"),
        "nodes": len(paths.nodes()),
        "device": meta.get("device"),
        "versions": versions(meta, told),
        "gpus": _gpus(paths, minutes),
        **_steps(total, min((rank.steps_done for rank in ranks), default=None)),
        "phases": _shares(total["phases_us"], total["recorded"]),
        "ranks": _ranks(ranks, total["ranks"]),
        **_verdicts(minutes, trained=bool(ranks), running=status == "running"),
        "hints": [str(e.get("message")) for e in events if e["kind"] == "hint"],
        "probe": _probe(ranks),
        "loss": _loss(minutes),
        "own_phases": _own_phases(total),
        "progress": progress(paths, status),
    }


def _status(paths: SessionPaths, events: list[Record]) -> str:
    """As the supervisor ended it: written before ``end``, so ``exit`` decides while it ends."""
    for record in reversed(events):
        if record["kind"] == "end":
            return str(record.get("status"))
        if record["kind"] == "exit":
            return status_of(record.get("cause"))
    return "lost" if liveness(paths) == "lost" else "running"


def status_of(cause: Any) -> str:
    """The session status (done, failed or stopped) that an exit cause makes."""
    if cause in ("completed", "duration", "steps"):
        return "done"
    return "stopped" if cause == "stopped" else "failed"


def _wall_s(nodes: list[list[Record]], meta: Mapping[str, Any], status: str) -> float | None:
    """The longest that a node took part; clocks of different nodes are not compared."""
    if status == "running" and isinstance(meta.get("wall_s"), (int, float)):
        return round(max(0.0, time.time() - float(meta["wall_s"])), 3)
    stamps = [[record["mono_ns"] for record in node if "mono_ns" in record] for node in nodes]
    longest = _most(moments[-1] - moments[0] for moments in stamps if moments)
    return None if longest is None else round(longest / 1e9, 3)


def _exit(events: list[Record]) -> dict[str, Any]:
    record = next((r for r in events if r["kind"] == "exit"), {})
    return {key: record.get(key) for key in ("cause", "rank", "code", "signal", "message")}


def _failure(events: list[Record], meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the failure card tells: where, the traceback, the last log lines, what to try."""
    return asdict(failure_of(next((r for r in events if r["kind"] == "exit"), {}), meta))


def _probe(ranks: list[RankFold]) -> dict[str, Any]:
    told = [rank.probe for rank in ranks if rank.probe]
    reasons = [rank.probe.get("disabled") or rank.disabled for rank in ranks]
    return {
        "cost_share": _most(record.get("cost_share") for record in told),
        "dropped": sum(record.get("dropped") or 0 for record in told) if told else None,
        "disabled": next((reason for reason in reasons if reason), None),
    }


def _both_ends(file: Path) -> list[Record]:
    start = Tail(file).poll(limit=_EDGE_BYTES)
    last = Tail(file, last_bytes=_EDGE_BYTES).poll()
    seen = max((r.get("seq", 0) for r in start), default=-1)
    return start + [r for r in last if r.get("seq", 0) > seen]


def _fields(record: Mapping[str, Any], drop: set[str]) -> dict[str, Any]:
    """A record without what every record has."""
    drop = drop | {"kind", "seq", "mono_ns"}
    return {key: value for key, value in record.items() if key not in drop}


def _sum_minutes(minutes: list[Record]) -> dict[str, Any]:
    """All minutes in one: sums of sums, and the merged histogram and ranks."""
    total: dict[str, Any] = dict.fromkeys(_MINUTE_SUMS)
    total.update(to_step=None, phases_us={}, latency={}, step_us_max=None, ranks={}, own_us={})
    for minute in minutes:
        _add(total, {name: minute.get(name) for name in _MINUTE_SUMS})
        for name in ("to_step", "step_us_max"):
            total[name] = _most([total[name], minute.get(name)])
        _add(total["phases_us"], minute.get("phases_us") or {})
        _add(total["latency"], minute.get("latency") or {})
        _add(total["own_us"], minute.get("own_us") or {})
        for rank in minute.get("ranks") or ():
            into = total["ranks"].setdefault(rank.get("rank"), {"phases_us": {}})
            _add(into["phases_us"], rank.get("phases_us") or {})
            sums = ("recorded", "host_us", "wait_us", "lag_us", "lag_steps")
            _add(into, {name: rank.get(name) for name in sums})
    return total


def _add(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Add up what is known: what never was stays absent or None, and does not become 0."""
    for key, value in values.items():
        if value is not None:
            into[key] = (into.get(key) or 0) + value


def _steps(total: Mapping[str, Any], finished: int | None) -> dict[str, Any]:
    """Counts, latency and throughput.

    Args:
        total: the minutes' sums.
        finished: what the ranks' own totals come to; None where no rank has ever trained.
    """
    steps, step_us = None if finished is None else total["steps"], total["step_us"]

    def rate(count: Any) -> float | None:
        return round(count * 1e6 / step_us, 3) if step_us and count else None

    # The first step began before the probe could see it: it is counted, and measured by nobody.
    warm_up = 1 + (total["warmup_steps"] or 0)
    done = _most([total["to_step"], finished or None, None if steps is None else steps + warm_up])
    return {
        "steps": done,
        "warmup_steps": None if done is None else min(done, warm_up),
        "recorded_steps": total["recorded"],
        "step_ms": {
            "mean": _ms(step_us, steps),
            **{f"p{q}": _percentile(total["latency"], q / 100) for q in (50, 95, 99)},
            "max": _ms(total["step_us_max"], 1),
        },
        "throughput": {
            "samples_per_s": rate(total["samples"]),
            "tokens_per_s": rate(total["tokens"]),
            "steps_per_s": rate(steps),
        },
    }


def _percentile(latency: Mapping[str, int], fraction: float) -> float | None:
    """A quantile in milliseconds of the 1 % histogram of step latencies (nearest rank)."""
    counts = sorted((int(bucket), count) for bucket, count in latency.items())
    wanted = fraction * sum(count for _, count in counts)
    for bucket, count in counts:
        wanted -= count
        if wanted <= 1e-9:
            return round(bucket_microseconds(bucket) / 1e3, 3)
    return None


def _shares(phases_us: Mapping[str, float], recorded: int | None) -> dict[str, Any]:
    told = [*PHASES, *([UNKNOWN] if UNKNOWN in phases_us else [])]
    whole = sum(phases_us.get(phase, 0) for phase in told)
    return {
        phase: {
            "ms": _ms(phases_us.get(phase), recorded),
            "share": round(phases_us[phase] / whole, 4) if whole and phase in phases_us else None,
        }
        for phase in told
    }


def _ms(microseconds: float | None, count: int | None) -> float | None:
    return round(microseconds / count / 1e3, 3) if microseconds is not None and count else None


def _ranks(ranks: list[RankFold], sums: Mapping[int, Any]) -> list[dict[str, Any]]:
    rows = []
    for rank in ranks:
        total = sums.get(rank.header["rank"], {"phases_us": {}})
        recorded = total.get("recorded")
        whole = sum(total["phases_us"].values()) if total["phases_us"] else None
        train = [loader for loader in rank.loaders.values() if loader.get("train", True)]
        drop = {"subject", "worker_pids", "loader", "train"}
        rows.append(
            {
                "rank": rank.header["rank"],
                "host": rank.header.get("host"),
                "gpu_uuid": (rank.header.get("device") or {}).get("uuid"),
                "phases": _shares(total["phases_us"], recorded),
                "step_ms": _ms(whole, recorded),
                "host_step_ms": _ms(total.get("host_us"), recorded),
                "lag_ms": _ms(total.get("lag_us"), total.get("lag_steps")),
                "wait_ms": _ms(total.get("wait_us"), recorded),
                "memory_peak_bytes": rank.memory.get("peak_bytes"),
                "loader": _fields(train[0], drop) if train else None,
                "inspected": _fields(rank.inspected, _OF_A_REQUEST) if rank.inspected else None,
            }
        )
    return rows


def _gpus(paths: SessionPaths, minutes: list[Record]) -> list[dict[str, Any]]:
    """The GPUs, with means over the minutes that trained; over all where none did."""
    trained = any(minute.get("steps") for minute in minutes)
    rows = []
    for node in paths.nodes():
        records = _both_ends(node.devices)
        facts = next((r.get("gpus") or [] for r in records if r["kind"] == "header"), [])
        for position, fact in enumerate(facts):
            sums: dict[str, Any] = {}
            peak = None
            for minute in minutes:
                for gpu in minute.get("gpus") or ():
                    if _is_gpu(gpu, fact, node.root.name):
                        names = ("samples", "util_percent", "sm_active", "sm_active_samples")
                        if minute.get("steps") or not trained:
                            _add(sums, {n: gpu.get(n) for n in (*names, "power_w")})
                        peak = _most([peak, gpu.get("memory_peak_bytes")])
            count, active = sums.get("samples"), sums.get("sm_active_samples")
            rows.append(
                {
                    **{key: fact.get(key) for key in ("index", "uuid", "name")},
                    "util_mean": _mean(sums.get("util_percent"), count, 2),
                    "sm_active_mean": _mean(sums.get("sm_active"), active, 4),
                    "memory_peak_bytes": peak,
                    "power_mean_w": _mean(sums.get("power_w"), count, 1),
                    "energy_j": _energy(records, position),
                }
            )
    return rows


def _is_gpu(gpu: Mapping[str, Any], fact: Mapping[str, Any], host: str) -> bool:
    """Whether a minute's entry is of this GPU: by UUID, or by node and index without one."""
    if gpu.get("uuid") and fact.get("uuid"):
        return gpu.get("uuid") == fact.get("uuid")
    return gpu.get("index") == fact.get("index") and gpu.get("host", host) == host


def _mean(total: float | None, count: int | None, digits: int) -> float | None:
    return round(total / count, digits) if total is not None and count else None


def _energy(records: list[Record], position: int) -> float | None:
    """Joules between the first and the last reading of a GPU's counter."""
    columns = [(r.get("gpus") or {}).get("energy_j") for r in records if r["kind"] == "tick"]
    read = [c[position] for c in columns if c and len(c) > position and c[position] is not None]
    if len(read) < 2 or read[-1] < read[0]:
        return None  # read once, or counted anew from a reset
    return round(float(read[-1] - read[0]), 1)


def _verdicts(minutes: list[Record], trained: bool, running: bool) -> dict[str, Any]:
    """Verdicts of the run, the longest as ``verdict`` too, and the findings that stood beside."""
    verdicts = _longest_first(minutes, "verdicts") if trained else []
    too_short = bool(verdicts) and verdicts[0]["kind"] == "UNDECIDED" and not verdicts[0]["seconds"]
    if too_short:  # its evidence tells what is needed
        verdicts[0] |= {"headline": _TOO_EARLY if running else _TOO_SHORT}
    # That a run hung is told although it had gone well for longer.
    hung = [verdict for verdict in verdicts[1:] if verdict.get("kind") == "HUNG"]
    return {
        "verdicts": verdicts,
        "verdict": verdicts[0] if verdicts else None,
        "findings": [*hung, *_longest_first(minutes, "findings")],
    }


def _longest_first(minutes: list[Record], field: str) -> list[dict[str, Any]]:
    """A field of verdicts over all minutes: one of each kind, rank and phase, as last told."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for minute in minutes:
        for verdict in minute.get(field) or ():
            key = (verdict.get("kind"), verdict.get("rank"), verdict.get("phase"))
            held = merged.get(key)
            seconds = (verdict.get("seconds") or 0) + (held["seconds"] if held else 0)
            start = held["from_step"] if held else verdict.get("from_step")
            merged[key] = {**verdict, "seconds": round(seconds, 1), "from_step": start}
    return sorted(merged.values(), key=lambda v: v["seconds"], reverse=True)


def _loss(minutes: list[Record]) -> dict[str, Any] | None:
    """The loss that the script logs, or else what its backward passes began with."""
    told = [m.get("scalars") or {} for m in minutes]
    names = {str(name) for scalars in told for name in scalars if "loss" in str(name).lower()}
    if not names:
        return None
    name = min(names, key=lambda name: (name != "loss", "(backward" in name, name))
    seen = [scalars[name] for scalars in told if scalars.get(name)]
    low = [s["min"] for s in seen if s.get("min") is not None]
    return {
        "first": seen[0].get("first"),
        "last": seen[-1].get("last"),
        "min": min(low) if low else None,
        "name": name,
    }


def _own_phases(total: Mapping[str, Any]) -> dict[str, Any]:
    """The script's own phases, within the others; those of the warm-up can be more than a step."""
    steps, step_ms = total.get("own_steps"), _ms(total["step_us"], total["steps"])
    spent = {name: _ms(us, steps) or 0.0 for name, us in sorted(total["own_us"].items())}
    return {
        name: {"ms": ms, "share": round(min(1.0, ms / step_ms), 4) if step_ms else None}
        for name, ms in spent.items()
    }


def _most(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
