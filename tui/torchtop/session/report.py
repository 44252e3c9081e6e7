"""The summary as Markdown that pastes well into a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.session.calls import calls_of, said
from torchtop.session.measures import measures, used_gpus
from torchtop.session.values import child

_MARKUP = re.compile(
    r"([\\`*_{}\[\]<>|#~!&$@]"  # CommonMark, HTML and its entities, formulas, mentions
    r"|:(?=//)|(?<=www)\."  # addresses become links by themselves
    r"|(?<=^)[-+=]|(?<=^\d)[.)](?!\S)|(?<=^\d\d)[.)](?!\S))"  # at the start: lists and headings
)


def escape(text: object) -> str:
    """Any text as one line of plain Markdown: nothing in it is markup or a control character."""
    flat = "".join(c if c.isprintable() else " " for c in str(text)).strip()
    return _MARKUP.sub(r"\\\1", flat)


def render_markdown(summary: Mapping[str, Any]) -> str:
    """A summary as Markdown: what ran, the verdict, the numbers, the phases, the GPUs."""
    lines = [f"# {escape(summary['name'] or summary['id'])}", ""]
    lines += [*_head(summary), "", *_failure(summary), *_verdict(summary), "", *_findings(summary)]
    lines += _inspected(summary)
    lines += ["| measure | value |", "|---|---|", *_numbers(summary), ""]
    lines += [*_phases(summary), ""]
    if summary["gpus"]:
        lines += [*_gpus(summary), ""]
    return "\n".join(lines)


def _head(summary: Mapping[str, Any]) -> list[str]:
    end = summary["exit"] or {}
    versions = summary["versions"]
    named = [f"{name} {escape(value)}" for name, value in versions.items() if value]
    options = [f"{escape(k)}={escape(v)}" for k, v in summary["options"].items()]
    lines = [
        f"- session: {escape(summary['id'])}",
        f"- workload: {_known(summary['workload'])} on {_ranks(summary)}",
        f"- started: {_known(summary['started_at'])}, ran {_duration(summary['wall_s'])}",
        f"- ended: {escape(summary['status'])}"
        + (f" ({escape(end['message'])})" if end.get("message") else ""),
        f"- versions: {', '.join(named)}",
    ]
    if summary.get("problem"):
        lines.append(f"- incomplete: {escape(summary['problem'])}")
    if options:
        lines.append(f"- options: {', '.join(options)}")
    lines += [f"- note: {escape(hint)}" for hint in summary.get("hints") or ()]
    if summary["synthetic_data"]:
        lines.append("- data: synthetic (made up in the data set's file format)")
    return lines


def _ranks(summary: Mapping[str, Any]) -> str:
    """How many ranks there were, and on what."""
    count, device = summary["world_size"], "GPU" if summary["device"] == "cuda" else "CPU"
    names = sorted({str(gpu.get("name")) for gpu in used_gpus(summary) if gpu.get("name")})
    told = f" ({escape(', '.join(names))})" if device == "GPU" and names else ""
    return f"{_known(count)} {device} rank{'' if count == 1 else 's'}{told}"


def _failure(summary: Mapping[str, Any]) -> list[str]:
    """The failure, with a blank line behind it; nothing where a run has not failed."""
    failure = summary.get("failure")
    if not failure:
        return []
    at = f" (at {escape(failure['where'])})" if failure.get("where") else ""
    lines = [f"**Failed:** {escape(failure['headline'])}{at}"]
    if advice := failure.get("advice"):
        lines += ["", *(f"- try: {escape(text)}" for text in advice)]
    for title, key in (("its traceback", "traceback"), ("the last lines of its log", "log")):
        if failure.get(key):
            lines += ["", f"{title.capitalize()}:", "", *_block(failure[key])]
    return [*lines, ""]


def _block(lines: Sequence[str]) -> list[str]:
    """Text of others as a block in which nothing is markup: its fence is longer than any in it."""
    flat = ["".join(c if c.isprintable() else " " for c in str(line)) for line in lines]
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", "".join(flat))), default=0))
    return [fence, *flat, fence]


def plain(markdown: str) -> str:
    """What `render_markdown` made, to be read on a terminal: only its escapes are taken out."""
    told, fence = [], ""
    for line in markdown.split("\n"):
        if re.fullmatch("`{3,}", line) and fence in ("", line):
            fence = line if not fence else ""
        told.append(line if fence else re.sub(r"\\([^\w\s])", r"\1", line))
    return "\n".join(told)


def _verdict(summary: Mapping[str, Any]) -> list[str]:
    verdict = summary["verdict"]
    if not verdict:
        return ["**Verdict:** none (too few steps were seen)"]
    lines = [f"**Verdict: {escape(verdict['kind'])}.** {escape(verdict.get('headline') or '')}", ""]
    lines += [f"- {escape(text)}" for text in verdict.get("evidence") or ()]
    lines += [f"- try: {escape(text)}" for text in verdict.get("advice") or ()]
    return lines


def _findings(summary: Mapping[str, Any]) -> list[str]:
    """What stood beside the verdict, with a blank line behind it; a summary may have none."""
    lines = []
    for finding in summary.get("findings") or ():
        whose = "" if finding.get("rank") is None else f"rank {finding['rank']}, "
        told = f"{whose}for {_number(finding.get('seconds'), 's')}"
        headline = f": {escape(finding['headline'])}" if finding.get("headline") else ""
        lines.append(f"- **{escape(finding.get('kind'))}** ({escape(told)}){headline}")
        lines += [f"  - {escape(text)}" for text in finding.get("evidence") or ()]
        lines += [f"  - try: {escape(text)}" for text in finding.get("advice") or ()]
    return ["**Beside it:**", "", *lines, ""] if lines else []


def _inspected(summary: Mapping[str, Any]) -> list[str]:
    """Calls that an inspected step made, with a blank line behind them; each told once."""
    calls: dict[str, list[Any]] = {}
    for rank in summary["ranks"]:
        for call in calls_of(rank.get("inspected") or {}):
            calls.setdefault(said(call), []).append(rank["rank"])
    lines = []
    for text, ranks in calls.items():
        whose = "" if len(ranks) == len(summary["ranks"]) else f" (rank {_listed(ranks)})"
        lines.append(f"- {escape(text + whose)}")
    return ["**Waits for the GPU, in a step that was inspected:**", "", *lines, ""] if lines else []


def _listed(ranks: Sequence[Any]) -> str:
    return ", ".join(str(rank) for rank in ranks[:4]) + (", ..." if len(ranks) > 4 else "")


def _numbers(summary: Mapping[str, Any]) -> list[str]:
    step, speed = summary["step_ms"], summary["throughput"]
    warmup, recorded = summary["warmup_steps"], summary.get("recorded_steps")
    notes = [f"{warmup} warm-up"] if warmup else []
    if recorded and summary["steps"] and recorded < summary["steps"] - (warmup or 0):
        notes.append(f"phases and latency from {_number(recorded)} of them")
    told = f" ({'; '.join(notes)})" if notes else ""
    rows = [("steps", _number(summary["steps"]) + told)]
    rows += [(f"step, {name}", _number(step[name], "ms")) for name in ("mean", "p50", "p95", "p99")]
    rows += [("samples/s", _number(speed["samples_per_s"]))]
    if speed["tokens_per_s"]:
        rows.append(("tokens/s", _number(speed["tokens_per_s"])))
    for key in ("memory", "energy"):
        measure = next(m for m in measures(()) if m.key == key)
        if (value := measure.read(summary)) is not None:
            rows.append((measure.title, _number(value)))
    rows += _progress(child(summary, "progress"))
    if summary["loss"]:
        loss = summary["loss"]
        rows.append(("loss, first to last", f"{_number(loss['first'])} to {_number(loss['last'])}"))
    if (cost := summary["probe"]["cost_share"]) is not None:
        rows.append(("host time in the probe", f"{cost:.2%}"))
    return [f"| {name} | {value} |" for name, value in rows]


def _progress(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How far the run has come, where that is known."""
    rows = []
    if told.get("eta_s") is not None:
        rows.append(("time left", _duration(told["eta_s"])))
    if told.get("epoch") is not None:
        of = "" if told.get("epoch_batches") is None else f" of {_number(told['epoch_batches'])}"
        place = f"{_number(told['epoch'] + 1)}, batch {_number(told.get('epoch_batch'))}{of}"
        left = told.get("epoch_eta_s")
        rows.append(("epoch", place + ("" if left is None else f", {_duration(left)} left")))
    return rows


def _phases(summary: Mapping[str, Any]) -> list[str]:
    ranks = summary["ranks"]
    head = ["phase", "the step, ms", "share", *(f"rank {r['rank']}, ms" for r in ranks[:8])]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for phase, value in summary["phases"].items():
        share = "–" if value["share"] is None else f"{value['share']:.1%}"
        cells = [phase, _number(value["ms"]), share]
        cells += [_number((r["phases"].get(phase) or {}).get("ms")) for r in ranks[:8]]
        lines.append(f"| {' | '.join(escape(c) for c in cells)} |")
    for name, value in (summary.get("own_phases") or {}).items():
        share = "–" if value["share"] is None else f"{value['share']:.1%}"
        cells = [f"{name} (of the script, within the others)", _number(value["ms"]), share]
        lines.append(f"| {' | '.join(escape(c) for c in cells)} |" + " |" * len(ranks[:8]))
    if len(ranks) > 1:
        lines += ["", "The step: for each phase, what the slowest rank at that point adds."]
    return lines


def _gpus(summary: Mapping[str, Any]) -> list[str]:
    lines = [
        "| GPU | name | utilization, % | SM active | memory peak, GiB | power, W | energy, kJ |",
        "|---|---|---|---|---|---|---|",
    ]
    for gpu in summary["gpus"]:
        active = gpu["sm_active_mean"]
        memory, energy = gpu["memory_peak_bytes"], gpu["energy_j"]
        cells = [
            gpu["index"],
            gpu["name"],
            _number(gpu["util_mean"]),
            "–" if active is None else f"{active:.0%}",
            _number(None if memory is None else memory / 2**30),
            _number(gpu["power_mean_w"]),
            _number(None if energy is None else energy / 1e3),
        ]
        lines.append(f"| {' | '.join(escape(c) for c in cells)} |")
    return lines


def _known(value: object) -> str:
    return "–" if value is None else escape(value)


def _duration(seconds: float | None) -> str:
    """Seconds; from two minutes on as ``m:ss`` or ``h:mm:ss``."""
    if seconds is None or seconds < 120:
        return _number(seconds, "s")
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02} min"


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()
