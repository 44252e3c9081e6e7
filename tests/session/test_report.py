"""The summary as Markdown: foreign text in it is text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from torchtop.session.records import PHASES
from torchtop.session.report import escape, render_markdown

HOSTILE = "a|b\n# c\r\n| d | e |\x1b[31m<script>x</script>[l](http://evil)`q`*e*_u_~~s~~\u202e$m$"


DEVICE = {
    "index": 0,
    "name": "H200",
    "util_mean": 1,
    "sm_active_mean": 0.5,
    "memory_peak_bytes": 2**30,
    "power_mean_w": 100,
    "energy_j": 5000,
}


def phases(ms: float | None, share: float | None) -> dict[str, Any]:
    return {phase: {"ms": ms, "share": share} for phase in PHASES}


def summary(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": "s",
        "name": "run",
        "workload": "train.py",
        "world_size": 2,
        "device": "cpu",
        "started_at": "2026-01-01T00:00:00Z",
        "wall_s": 61.5,
        "status": "done",
        "exit": {"message": None},
        "versions": {"torch": "2.11", "cuda": None},
        "options": {"batch": 16},
        "synthetic_data": False,
        "verdict": None,
        "steps": 40,
        "warmup_steps": 10,
        "step_ms": {"mean": 10.5, "p50": 10, "p95": 12, "p99": 1234.5, "max": 20},
        "throughput": {"samples_per_s": 320.0, "tokens_per_s": None, "steps_per_s": 20},
        "phases": phases(1.5, 0.25),
        "ranks": [{"rank": 0, "phases": phases(1.0, 0.5)}],
        "gpus": [],
        "probe": {"cost_share": 0.0012},
        "loss": {"first": 2.5, "last": 0.25, "min": 0.2},
    }
    return {**whole, **changes}


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_the_numbers_are_in_it() -> None:
    text = render_markdown(summary())

    assert text.startswith("# run\n")
    assert "| steps | 40 (10 warm-up) |" in text
    assert "| step, mean | 10.5 ms |" in text
    assert "| step, p99 | 1,234 ms |" in text
    assert "| samples/s | 320 |" in text
    assert "tokens/s" not in text
    assert "| data | 1.5 | 25.0% | 1 |" in text
    assert "| loss, first to last | 2.5 to 0.25 |" in text
    assert "| host time in the probe | 0.12% |" in text
    assert "synthetic" not in text


def test_the_head_names_ranks_devices_and_times() -> None:
    gpus = [{**DEVICE, "uuid": f"GPU-{i}", "name": name} for i, name in enumerate(("H_200", "T4"))]
    ranks = [{"rank": 0, "phases": phases(1.0, 0.5), "gpu_uuid": "GPU-0"}]
    text = render_markdown(summary(device="cuda", gpus=gpus, ranks=ranks, wall_s=5430.2))
    assert "- workload: train.py on 2 GPU ranks (H\\_200)\n" in text
    assert "ran 1:30:30\n" in text
    assert "ran 2:05 min\n" in render_markdown(summary(wall_s=125.4))
    assert "on 1 CPU rank\n" in render_markdown(summary(world_size=1))


def test_memory_and_energy_are_among_the_measures() -> None:
    gpus = [{**DEVICE, "uuid": "GPU-0", "power_mean_w": 640.0}]
    text = render_markdown(summary(gpus=gpus))
    assert "| memory peak, GiB | 1 |" in text
    assert "| energy, J/1000 samples | 2,000 |" in text
    assert "energy, J" not in render_markdown(summary())


def test_what_is_missing_is_a_dash_and_not_a_zero() -> None:
    nothing = dict.fromkeys(("mean", "p50", "p95", "p99", "max"))
    gpu = dict.fromkeys(
        ("index", "name", "util_mean", "sm_active_mean", "memory_peak_bytes", "power_mean_w")
    )
    text = render_markdown(
        summary(
            steps=None,
            warmup_steps=None,
            step_ms=nothing,
            throughput=dict.fromkeys(("samples_per_s", "tokens_per_s", "steps_per_s")),
            phases=phases(None, None),
            gpus=[{**gpu, "index": 0, "name": "H200", "energy_j": None}],
            probe={"cost_share": None},
            loss=None,
            wall_s=None,
        )
    )

    assert "| steps | – |" in text
    assert "| step, mean | – |" in text
    assert "| data | – | – | 1 |" in text
    assert "| 0 | H200 | – | – | – | – | – |" in text
    assert "**Verdict:** none" in text


def test_a_verdict_comes_with_its_evidence_and_advice() -> None:
    verdict = {
        "kind": "DATA",
        "headline": "waiting for data",
        "evidence": ["38 % of each step"],
        "advice": ["raise num_workers"],
    }

    text = render_markdown(summary(verdict=verdict, synthetic_data=True))

    assert "**Verdict: DATA.** waiting for data" in text
    assert "- 38 % of each step" in text
    assert "- try: raise num\\_workers" in text
    assert "- data: synthetic" in text


def test_findings_stand_below_the_verdict_with_evidence_and_advice() -> None:
    finding = {
        "kind": "THROTTLED",
        "rank": 1,
        "seconds": 35.5,
        "headline": "GPU 1 is slow",
        "evidence": ["1200 of 1980 MHz"],
        "advice": ["check the fan_speed"],
    }

    text = render_markdown(summary(findings=[finding, {"kind": "CONTENTION"}]))

    assert text.index("Verdict") < text.index("Beside it") < text.index("| measure |")
    assert "- **THROTTLED** (rank 1, for 35.5 s): GPU 1 is slow" in text
    assert "  - 1200 of 1980 MHz\n  - try: check the fan\\_speed" in text
    assert "- **CONTENTION** (for –)\n" in text


def test_without_findings_nothing_is_said_of_them() -> None:
    assert "Beside it" not in render_markdown(summary(findings=[]))
    assert "Beside it" not in render_markdown(summary())  # of an older torchtop


def test_foreign_text_breaks_no_table_and_is_no_markup() -> None:
    verdict = {"kind": "DATA", "headline": HOSTILE, "evidence": [HOSTILE], "advice": [HOSTILE]}
    gpu = {
        "index": 0,
        "name": HOSTILE,
        "util_mean": 1,
        "sm_active_mean": 0.5,
        "memory_peak_bytes": 2**30,
        "power_mean_w": 100,
        "energy_j": 5000,
    }

    text = render_markdown(
        summary(
            id=HOSTILE,
            name=HOSTILE,
            workload=HOSTILE,
            options={HOSTILE: HOSTILE},
            versions={"torch": HOSTILE},
            exit={"message": HOSTILE},
            verdict=verdict,
            findings=[{**verdict, "rank": HOSTILE, "seconds": None}],
            gpus=[gpu],
            status=HOSTILE,
        )
    )

    assert all(c.isprintable() or c == "\n" for c in text)
    assert len([line for line in text.splitlines() if line.startswith("#")]) == 1
    row = next(line for line in text.splitlines() if line.startswith("| 0 |"))
    assert len(cells(row)) == 7
    for line in text.splitlines():
        assert not re.search(r"(?<!\\)<", line), line
        assert not re.search(r"(?<!\\)`", line), line
        assert not re.search(r"(?<!\\):(?=//)", line), line


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a_b", r"a\_b"),
        ("50 %", "50 %"),
        ("&lt;b&gt;", r"\&lt;b\&gt;"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("12) item", r"12\) item"),
        ("3.5 ms", "3.5 ms"),
        ("   indented", "indented"),
        ("see https://x", r"see https\://x"),
        ("www.x.org", r"www\.x.org"),
        ("@team", r"\@team"),
        ("![i](u)", r"\!\[i\](u)"),
        ("a\x00\x1b[0m\u2028b\udcffc", r"a  \[0m b c"),
        (None, "None"),
        (7, "7"),
    ],
)
def test_any_text_is_one_plain_line(text: object, plain: str) -> None:
    assert escape(text) == plain
