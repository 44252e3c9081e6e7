"""A sweep as plain text: its table, and where the rest of the throughput went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchtop.commands.text import duration, number, safe, table

Json = Mapping[str, Any]

_BAR = 24
_FAR_POINTS = 0.05


def lines(sweep: Json) -> list[str]:
    """The table, why cells are slower than ideal, and what to know of it."""
    told = [*tables(sweep)]
    for cell in sweep["cells"]:
        told += waterfall(cell)
    for cell in sweep["cells"]:
        if cell.get("reason"):
            told.append(f"{cell['status']}: {safe(cell['label'])}: {safe(cell['reason'])}")
    told += [f"note: {safe(note)}" for note in sweep["notes"]]
    return told


def tables(sweep: Json) -> list[str]:
    """Speed and scaling, then what each cell costs, then versions where interpreters differ."""
    cells = sweep["cells"]
    told = [table(*_speed(cells)), "", table(*_costs(cells))]
    if any(axis["name"] == "python" for axis in sweep["axes"]):
        told += ["", table(*_versions(cells))]
    return told


def _speed(cells: Sequence[Json]) -> tuple[list[str], list[list[str]]]:
    scaled = any(cell["base"] for cell in cells)
    tokens = any(cell["tokens_per_s"] for cell in cells)
    head = ["", "a GPU", "batch", "samples/s", "±"]
    head += ["tokens/s"] if tokens else []
    head += ["step ms", "p50", "p95"]
    head += ["speed-up", "ideal", "efficiency"] if scaled else ["of first"]
    rows = []
    for cell in cells:
        rate, step = cell["samples_per_s"] or {}, cell["step_ms"] or {}
        row = [_label(cell), number(cell["batch_per_gpu"]), number(cell["batch"])]
        row += [number(rate.get("median")), _spread(rate.get("spread"))]
        row += [number((cell["tokens_per_s"] or {}).get("median"))] if tokens else []
        row += [_ms(step.get("median")), _ms(cell["p50_ms"]), _ms(cell["p95_ms"])]
        if scaled:
            known = cell["speedup"] is not None
            row += [_times(cell["speedup"]), _times(cell["ideal"] if known else None)]
            row += [_percent(cell["efficiency"])]
        else:
            row += [_times(cell["relative"] if cell["role"] == "asked" else None)]
        rows.append(row)
    return head, rows


def _costs(cells: Sequence[Json]) -> tuple[list[str], list[list[str]]]:
    head = ["", "runs", "J/1000 samples", "peak memory", "first steps", "verdict"]
    rows = [
        [
            _label(cell),
            str((cell["step_ms"] or {}).get("runs") or cell["status"]),
            number(cell["energy_j_per_1000_samples"]),
            _bytes(cell["memory_peak_bytes"]),
            "–" if cell["first_steps_s"] is None else f"{cell['first_steps_s']:.1f} s",
            _verdict(cell),
        ]
        for cell in cells
    ]
    return head, rows


def _versions(cells: Sequence[Json]) -> tuple[list[str], list[list[str]]]:
    names = ("torch", "cuda", "cudnn", "nccl", "python")
    rows = []
    for cell in cells:
        told = cell["versions"]
        compiles = {True: "yes", False: "no"}.get(told.get("compile"), "–")
        rows.append([_label(cell), *(str(told.get(name) or "–") for name in names), compiles])
    return ["", *names, "compile"], rows


def waterfall(cell: Json) -> list[str]:
    """From the ideal to the measured throughput of a cell, a line a part."""
    loss = cell.get("loss")
    if not loss:
        return []
    lost, ideal = loss["lost_points"], loss["ideal_samples_per_s"]
    word = "lost" if lost >= 0 else "gained"
    told = [
        "",
        f"{safe(cell['label'])}: {number(loss['measured_samples_per_s'])} of "
        f"{number(ideal)} samples/s ideal, {abs(lost):.1f} % {word}",
    ]
    width = max(len(part["label"]) for part in loss["parts"])
    most = max((abs(part["points"]) for part in loss["parts"]), default=0.0) or 1.0
    for part in sorted(loss["parts"], key=lambda part: part["key"] == "other"):
        shown = "█" * round(_BAR * max(0.0, part["points"]) / most)
        why = part["why"] if abs(part["points"]) >= _FAR_POINTS else None
        row = f"  {part['label'].ljust(width)} {part['points']:6.1f} % {shown.ljust(_BAR)}"
        told.append(f"{row} {safe(why)}".rstrip() if why else row.rstrip())
    return told


def begun(sweep_id: str, root: object, cells: int, runs: int) -> str:
    """The first line of a sweep."""
    many = "1 cell" if cells == 1 else f"{cells} cells"
    left = f"at most {runs} run{'' if runs == 1 else 's'}" if runs else "nothing is left to measure"
    return f"sweep {sweep_id}: {many}, {left}  ({root})"


def ended(cell: Json, run: Json, progress: Json) -> str:
    """What a run came to, and how long the rest takes."""
    made = run.get("measured")
    if made:
        rate = made.get("samples_per_s")
        speed = "" if rate is None else f"{number(rate)} samples/s, "
        told = f"{speed}{_ms(made['step_ms'])} ms a step (p95 {_ms(made['p95_ms'])})"
        verdict = made.get("verdict") or {}
        told += f"  [{verdict['kind']}]" if verdict.get("kind") else ""
    else:
        told = f"{run.get('status')}: {safe(run.get('reason') or 'no reason is known')}"
    left = progress["runs_left"]
    rest = f"at most {left} more, {duration(progress['eta_s'])}" if left else "the last"
    return f"{safe(cell['label'])}: {told}  ({rest})"


def _label(cell: Json) -> str:
    mark = "* " if cell["role"] == "reference" else ""
    return mark + safe(cell["label"])


def _verdict(cell: Json) -> str:
    verdict = cell["verdict"]
    if not verdict or not verdict.get("kind"):
        return safe(cell["reason"] or "–", 60)
    share = verdict.get("share")
    return str(verdict["kind"]) + ("" if share is None else f" {share:.0%}")


def _spread(value: float | None) -> str:
    """Half of how far the runs lie apart."""
    return "–" if value is None else f"{value / 2:.1%}"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _bytes(value: float | None) -> str:
    return "–" if value is None else f"{value / 2**30:.2f} GiB"
