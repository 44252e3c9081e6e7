"""A session that has ended, as one measurement of a cell."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torchtop.diagnose.rows import integer, number
from torchtop.experiment.steps import NotMeasuredError, Recorded, read_steps
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.launch.supervisor import LAUNCH_FILE
from torchtop.session.paths import SessionPaths, describe
from torchtop.session.records import PHASES
from torchtop.session.saved import saved_summary
from torchtop.session.summary import build_summary
from torchtop.session.tail import SessionTail, Tail

_NOT_RANKS = ("analysis.jsonl", "history.jsonl")


def run_of(paths: SessionPaths, warm_up: int) -> dict[str, Any]:
    """The ``run`` of ``sweep.json`` that a session makes; see `torchtop.session.sweeps`.

    Args:
        paths: the session; it has ended.
        warm_up: the number of the last step that is left out.
    """
    summary = saved_summary(paths) or build_summary(paths)
    status = str(summary.get("status"))
    meta = describe(paths)
    run: dict[str, Any] = {
        "session": paths.id,
        "status": status,
        "reason": None if status == "done" else _reason(paths, summary),
        "host": meta.get("host"),
        "started_at": meta.get("started_at"),
        "wall_s": summary.get("wall_s"),
        "measured": None,
    }
    if status != "done":
        return run
    try:
        run["measured"] = _measured(paths, summary, warm_up)
    except NotMeasuredError as error:
        disabled = (summary.get("probe") or {}).get("disabled")
        why = f"the probe took itself out: {disabled}" if disabled else str(error)
        run |= {"status": "failed", "reason": why}
    return run


def _reason(paths: SessionPaths, summary: Mapping[str, Any]) -> str:
    """Why a session failed: what its script said last, where it ended itself with a status."""
    end = dict(summary.get("exit") or {})
    told = end.get("message") or summary.get("status")
    if end.get("cause") == "exit_code":
        tails = [
            record.get("log_tail") or []
            for node in paths.nodes()
            for record in Tail(node.events).poll()
            if record["kind"] == "exit"
        ]
        said = [line for tail in tails for line in tail if str(line).strip()]
        told = said[-1] if said else told
    return " ".join(str(told).split())


def _measured(paths: SessionPaths, summary: Mapping[str, Any], warm_up: int) -> dict[str, Any]:
    recorded = read_steps(SessionTail(paths, skip=_NOT_RANKS).poll(), warm_up)
    samples_per_s = recorded.per_s("samples")
    power = _power_w(paths, recorded)
    return {
        "steps": recorded.count,
        "batch": recorded.usual("samples"),
        "world_size": len(recorded.ranks),
        "samples_per_s": samples_per_s,
        "tokens_per_s": recorded.per_s("tokens"),
        "step_ms": recorded.step_ms,
        "p50_ms": recorded.percentile_ms(0.50),
        "p95_ms": recorded.percentile_ms(0.95),
        "power_w": power,
        "energy_j_per_1000_samples": 1000 * power / samples_per_s
        if power is not None and samples_per_s
        else None,
        "memory_peak_bytes": _peak(recorded),
        "first_steps_s": _first_steps_s(recorded),
        "training_loss": (summary.get("loss") or {}).get("last") or recorded.first.loss,
        "verdict": _verdict(summary.get("verdict")),
        "phases": _phases(recorded),
        "versions": _versions(summary, recorded),
        "costs": recorded.costs().to_json(),
    }


def _phases(recorded: Recorded) -> dict[str, float | None]:
    """The frontier, of which all steps have the shares that the recorded ones have."""
    window = recorded.window
    scale = recorded.step_ms / window.step_us if window.step_us else 0.0
    return {
        phase: None if phase in window.unknown else window.frontier_us[phase] * scale
        for phase in PHASES
    }


def _verdict(verdict: Any) -> dict[str, Any] | None:
    if not isinstance(verdict, dict):
        return None
    names = ("kind", "severity", "share", "rank", "phase", "headline", "seconds")
    return {name: verdict.get(name) for name in names}


def _peak(recorded: Recorded) -> int | None:
    known = [f.peak_bytes for f in recorded.ranks.values() if f.peak_bytes is not None]
    return max(known, default=None)


def _first_steps_s(recorded: Recorded) -> float | None:
    """What the steps of the warm-up took beyond what they would at full speed."""
    started = number(recorded.first.facts.get("script", {}).get("training_started_ns"))
    if started is None:
        return None
    first = recorded.steps[0].step + 1
    return max(0.0, (recorded.span_ns[0] - started) / 1e9 - first * recorded.step_ms / 1e3)


def _versions(summary: Mapping[str, Any], recorded: Recorded) -> dict[str, Any]:
    header = recorded.first.header
    known = dict(summary.get("versions") or {})
    told = recorded.first.facts.get("script", {}).get("compile_available")
    device = header.get("device") or {}
    return {
        "python": known.get("python"),
        "torch": known.get("torch"),
        "cuda": known.get("cuda") if recorded.cuda else None,
        "cudnn": _cudnn(integer(header.get("cudnn"))),
        "nccl": known.get("nccl"),
        "driver": known.get("driver") if recorded.cuda else None,
        "gpu": device.get("name") if recorded.cuda else None,
        "compile": told if isinstance(told, bool) else None,
    }


def _cudnn(number_of: int | None) -> str | None:
    """cuDNN's version from its number: 8902 is 8.9.2, and 91900 is 9.19.0."""
    if not number_of:
        return None
    major = 10_000 if number_of >= 90_000 else 1_000
    return f"{number_of // major}.{number_of % major // 100}.{number_of % 100}"


def _power_w(paths: SessionPaths, recorded: Recorded) -> float | None:
    """Mean power of the GPUs in use together, while steps were measured.

    Their counter of energy is read too seldom for a run of seconds.
    """
    if not recorded.cuda:
        return None
    wanted = _gpu_uuids(paths, recorded)
    start_ns, end_ns = recorded.span_ns
    total: list[float] = []
    for node in paths.nodes():
        records = Tail(node.devices).poll()
        gpus = next((r.get("gpus") or [] for r in records if r["kind"] == "header"), [])
        places = [i for i, gpu in enumerate(gpus) if gpu.get("uuid") in wanted]
        ticks = [
            (r.get("gpus") or {}).get("power_w") or []
            for r in records
            if r["kind"] == "tick" and start_ns <= r.get("mono_ns", 0) <= end_ns
        ]
        means = [_mean([tick[i] for tick in ticks if i < len(tick)]) for i in places]
        total += [mean for mean in means if mean is not None]
    return sum(total) if wanted and len(total) == len(wanted) else None


def _gpu_uuids(paths: SessionPaths, recorded: Recorded) -> set[str]:
    """The GPUs in use: with DataParallel one process has several."""
    told = {(file.header.get("device") or {}).get("uuid") for file in recorded.ranks.values()}
    with contextlib.suppress(LaunchError):
        told |= set(LaunchSpec.load(paths.stage / LAUNCH_FILE).gpu_uuids)
    return {str(uuid) for uuid in told if uuid}


def _mean(values: Sequence[Any]) -> float | None:
    known = [value for value in map(number, values) if value is not None]
    return fmean(known) if known else None
