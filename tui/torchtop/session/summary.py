"""The session summary: built from the rest of the directory, so it can be rebuilt at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torchtop.session import redact
from torchtop.session.paths import SessionPaths, describe, liveness, write_json
from torchtop.session.records import PHASES, SCHEMA, Record, bucket_microseconds
from torchtop.session.report import render_markdown
from torchtop.session.tail import Tail

_EDGE_BYTES = 512 << 10
"""Facts stand at the start of a rank's file and the last totals at its end: both ends are read."""

_MINUTE_SUMS = ("steps", "warmup_steps", "step_us", "recorded", "samples", "tokens")


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
    return summary


def build_summary(paths: SessionPaths) -> dict[str, Any]:
    """The summary of a session as it stands: shape in DESIGN section 4, units in the names.

    Durations in ``_ms`` and ``_s``; shares 0..1; null where something was not measured.
    """
    meta = describe(paths)
    events = [record for node in paths.nodes() for record in Tail(node.events).poll()]
    ranks = _read_ranks(paths)
    history = Tail(paths.history).poll()
    minutes = [record for record in history if record["kind"] == "minute"]
    total = _sum_minutes(minutes)
    script = {k: v for r in ranks for k, v in r["script"].items()}
    probe = [r["probe"] for r in ranks if r["probe"]]
    first = ranks[0]["header"] if ranks else {}
    return {
        "schema": SCHEMA,
        "id": paths.id,
        "name": meta.get("name"),
        "workload": meta.get("workload"),
        "argv": redact.argv(meta.get("argv") or []),
        "options": redact.mapping(meta.get("options") or {}),
        "synthetic_data": bool(script.get("synthetic_data", False)),
        "status": _status(paths, events),
        "started_at": meta.get("started_at"),
        "wall_s": _wall_s(events),
        "exit": _exit(events),
        "world_size": first.get("world_size") or meta.get("nproc"),
        "nodes": len(paths.nodes()),
        "device": meta.get("device"),
        "versions": _versions(meta, first),
        "gpus": _gpus(paths, minutes),
        **_steps(total),
        "phases": _shares(total["phases_us"], total["recorded"]),
        "ranks": _ranks(ranks, total["ranks"]),
        **_verdicts(minutes),
        "probe": {
            "cost_share": _most(p.get("cost_share") for p in probe),
            "dropped": sum(p.get("dropped") or 0 for p in probe),
            "disabled": next((p["disabled"] for p in probe if p.get("disabled")), None),
        },
        "loss": _loss(minutes),
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


def _wall_s(events: list[Record]) -> float | None:
    if not events:
        return None
    elapsed: int = events[-1]["mono_ns"] - events[0]["mono_ns"]
    return round(elapsed / 1e9, 3)


def _exit(events: list[Record]) -> dict[str, Any]:
    record = next((r for r in events if r["kind"] == "exit"), {})
    return {key: record.get(key) for key in ("cause", "rank", "code", "signal", "message")}


def _versions(meta: Mapping[str, Any], rank: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(meta.get("versions") or {})
    for name in ("python", "torch", "cuda", "nccl"):
        known[name] = rank.get(name) or known.get(name)
    names = ("torchtop", "python", "torch", "cuda", "nccl", "driver")
    return {name: known.get(name) for name in names}


def _read_ranks(paths: SessionPaths) -> list[dict[str, Any]]:
    """What each rank's newest file says of it, by rank."""
    found: dict[int, dict[str, Any]] = {}
    files = [f for f in paths.ranks.glob("*.jsonl") if not f.name.endswith(".process.jsonl")]
    for file in sorted(files, key=lambda f: f.stat().st_mtime):
        entry: dict[str, Any] = {"loaders": {}, "script": {}, "memory": {}, "probe": {}}
        for record in _both_ends(file):
            kind, subject = record["kind"], record.get("subject")
            if kind == "header":
                entry["header"] = record
            elif kind == "facts" and subject == "loader":
                entry["loaders"][record.get("loader", 0)] = record
            elif kind == "facts" and subject == "script":
                entry["script"].update(_fields(record, {"subject"}))
            elif kind in ("memory", "probe"):
                entry[kind] = record
        if isinstance(entry.get("header", {}).get("rank"), int):
            found[entry["header"]["rank"]] = entry
    return [found[rank] for rank in sorted(found)]


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
    total: dict[str, Any] = dict.fromkeys(_MINUTE_SUMS, 0)
    total.update(to_step=0, phases_us={}, latency={}, step_us_max=None, ranks={})
    for minute in minutes:
        total["to_step"] = max(total["to_step"], minute.get("to_step") or 0)
        for name in _MINUTE_SUMS:
            total[name] += minute.get(name) or 0
        total["step_us_max"] = _most([total["step_us_max"], minute.get("step_us_max")])
        _add(total["phases_us"], minute.get("phases_us") or {})
        _add(total["latency"], minute.get("latency") or {})
        for rank in minute.get("ranks") or ():
            into = total["ranks"].setdefault(rank.get("rank"), {"phases_us": {}})
            _add(into["phases_us"], rank.get("phases_us") or {})
            sums = ("recorded", "host_us", "wait_us", "lag_us", "lag_steps")
            _add(into, {name: rank.get(name) for name in sums})
    return total


def _add(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        into[key] = (into.get(key) or 0) + (value or 0)


def _steps(total: Mapping[str, Any]) -> dict[str, Any]:
    steps, step_us = total["steps"], total["step_us"]
    seconds = step_us / 1e6

    def rate(count: Any) -> float | None:
        return round(count / seconds, 3) if seconds and count else None

    # The first step began before the probe could see it: it is counted, and measured by nobody.
    done = max(total["to_step"], steps + total["warmup_steps"])
    return {
        "steps": done,
        "warmup_steps": done - steps,
        "step_ms": {
            "mean": round(step_us / steps / 1e3, 3) if steps else None,
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


def _shares(phases_us: Mapping[str, float], recorded: int) -> dict[str, Any]:
    whole = sum(phases_us.get(phase) or 0 for phase in PHASES)
    return {
        phase: {
            "ms": _ms(phases_us.get(phase) or 0, recorded),
            "share": round((phases_us.get(phase) or 0) / whole, 4) if whole else None,
        }
        for phase in PHASES
    }


def _ms(microseconds: float | None, count: int) -> float | None:
    return round(microseconds / count / 1e3, 3) if microseconds is not None and count else None


def _ranks(ranks: list[dict[str, Any]], sums: Mapping[int, Any]) -> list[dict[str, Any]]:
    rows = []
    for entry in ranks:
        header = entry["header"]
        total = sums.get(header["rank"], {"phases_us": {}})
        recorded = total.get("recorded") or 0
        train = [f for f in entry["loaders"].values() if f.get("train", True)]
        drop = {"subject", "worker_pids", "loader", "train"}
        rows.append(
            {
                "rank": header["rank"],
                "host": header.get("host"),
                "gpu_uuid": (header.get("device") or {}).get("uuid"),
                "phases": _shares(total["phases_us"], recorded),
                "step_ms": _ms(sum(total["phases_us"].values()), recorded),
                "host_step_ms": _ms(total.get("host_us"), recorded),
                "lag_ms": _ms(total.get("lag_us"), total.get("lag_steps") or 0),
                "wait_ms": _ms(total.get("wait_us"), recorded),
                "memory_peak_bytes": entry["memory"].get("peak_bytes"),
                "loader": _fields(train[0], drop) if train else None,
            }
        )
    return rows


def _gpus(paths: SessionPaths, minutes: list[Record]) -> list[dict[str, Any]]:
    rows = []
    for node in paths.nodes():
        records = _both_ends(node.devices)
        facts = next((r.get("gpus") or [] for r in records if r["kind"] == "header"), [])
        for position, fact in enumerate(facts):
            sums: dict[str, Any] = {}
            peak = None
            for minute in minutes:
                for gpu in minute.get("gpus") or ():
                    if gpu.get("index") == fact.get("index"):
                        names = ("samples", "util_percent", "sm_active", "sm_active_samples")
                        _add(sums, {n: gpu.get(n) for n in (*names, "power_w")})
                        peak = _most([peak, gpu.get("memory_peak_bytes")])
            count, active = sums.get("samples") or 0, sums.get("sm_active_samples") or 0
            rows.append(
                {
                    **{key: fact.get(key) for key in ("index", "uuid", "name")},
                    "util_mean": round(sums["util_percent"] / count, 2) if count else None,
                    "sm_active_mean": round(sums["sm_active"] / active, 4) if active else None,
                    "memory_peak_bytes": peak,
                    "power_mean_w": round(sums["power_w"] / count, 1) if count else None,
                    "energy_j": _energy(records, position),
                }
            )
    return rows


def _energy(records: list[Record], position: int) -> float | None:
    """Joules between the first and the last reading of a GPU's counter."""
    columns = [(r.get("gpus") or {}).get("energy_j") for r in records if r["kind"] == "tick"]
    read = [c[position] for c in columns if c and len(c) > position and c[position] is not None]
    return round(read[-1] - read[0], 1) if len(read) > 1 else None


def _verdicts(minutes: list[Record]) -> dict[str, Any]:
    """Verdicts of the run, the longest standing first, and that one again as ``verdict``."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for minute in minutes:
        for verdict in minute.get("verdicts") or ():
            key = (verdict.get("kind"), verdict.get("rank"), verdict.get("phase"))
            held = merged.get(key)
            seconds = (verdict.get("seconds") or 0) + (held["seconds"] if held else 0)
            start = held["from_step"] if held else verdict.get("from_step")
            merged[key] = {**verdict, "seconds": round(seconds, 1), "from_step": start}
    ranked = sorted(merged.values(), key=lambda v: v["seconds"], reverse=True)
    return {"verdicts": ranked, "verdict": ranked[0] if ranked else None}


def _loss(minutes: list[Record]) -> dict[str, Any] | None:
    seen = [s["loss"] for m in minutes if (s := m.get("scalars") or {}).get("loss")]
    if not seen:
        return None
    low = [s["min"] for s in seen if s.get("min") is not None]
    return {
        "first": seen[0].get("first"),
        "last": seen[-1].get("last"),
        "min": min(low) if low else None,
    }


def _most(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
