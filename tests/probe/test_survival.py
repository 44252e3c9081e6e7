"""What people do with torch beside a plain loop, with the probe and without: all stays the same.

The same script runs by plain Python and by a staged `rank.py`; on a GPU where there is one.
"""

from __future__ import annotations

import ast
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from probe.staged import Ended, Stage, run

torch = pytest.importorskip("torch")

SCRIPT = str(Path(__file__).with_name("survivors.py"))

WAYS = [
    "compiled_model",
    "ddp_of_compiled",
    "compiled_ddp",
    "compiled_in_place",
    "compiled_step",
    "compiled_step_by_function",
    "compiled_loop",
    "compiled_optimizer",
    "comm_hook",
    "amp",
    "captured",
    "not_a_number",
    "odd_loaders",
    "frozen",
]

RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


@dataclass
class Sides:
    """The script without the probe and with it."""

    bare: Ended
    probed: Ended
    stage: Stage

    def lines(self, way: str) -> tuple[list[str], list[str]]:
        """What a way printed: without the probe, and with it."""
        return self._lines(self.bare, way), self._lines(self.probed, way)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Records of the probe."""
        records = self.stage.records("0-0-*.jsonl")
        return [record for record in records if record["kind"] == kind]

    @staticmethod
    def _lines(ended: Ended, way: str) -> list[str]:
        lines = ended.out.splitlines()
        names = [line.split()[0] for line in lines]
        assert way in names, ended.err
        end = names.index(way)
        begin = max((n for n in range(end) if names[n] in [*WAYS, "inductor"]), default=-1)
        return lines[begin + 1 : end + 1]


def both(folder: Path, *ways: str) -> Sides:
    """Run the script's ways on both sides, at the same time."""
    stage = Stage.make(folder / "session")
    with ThreadPoolExecutor() as pool:
        # Any free port: the one rank talks to itself.
        runs = [
            pool.submit(run, [*words, *ways], folder, timeout_s=240, MASTER_PORT="0", **RANK)
            for words in ([SCRIPT], [stage.rank_py, SCRIPT])
        ]
        bare, probed = (pending.result() for pending in runs)
    return Sides(bare, probed, stage)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return both(tmp_path_factory.mktemp("survival"), *WAYS)


def compare(bare: list[str], probed: list[str]) -> None:
    """The same output, weights, graphs and graph breaks; no frame is compiled that was not."""
    assert probed[:-1] == bare[:-1]
    (way, weights, told), (_, weights_probed, told_probed) = (
        line.split(maxsplit=2) for line in (bare[-1], probed[-1])
    )
    assert weights_probed == weights, way
    counts, breaks, reasons = parsed(told)
    counts_probed, breaks_probed, reasons_probed = parsed(told_probed)
    assert (breaks_probed, reasons_probed) == (breaks, reasons)
    assert counts_probed.get("stats") == counts.get("stats")
    frames, frames_probed = counts.get("frames", {}), counts_probed.get("frames", {})
    # An optimizer that has any hook at all goes another way through torch: one frame less.
    assert frames.get("total", 0) - 1 <= frames_probed.get("total", 0) <= frames.get("total", 0)


def parsed(told: str) -> tuple[dict[str, Any], int, list[str]]:
    """What a line tells of Dynamo."""
    begin, end = told.rindex("} ") + 1, told.rindex("} ") + 1
    count, _, reasons = told[end:].strip().partition(" ")
    return ast.literal_eval(told[:begin]), int(count), ast.literal_eval(reasons)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_trained_comes_to_the_same(sides: Sides, way: str) -> None:
    if way == "captured" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA graph without CUDA")
    compare(*sides.lines(way))


def test_the_probe_stays_and_says_nothing(sides: Sides) -> None:
    assert (sides.bare.code, sides.probed.code) == (0, 0), sides.probed.err
    assert sides.stage.process("probe") == []
    assert sides.records("probe")[-1]["disabled"] is None
    assert "torchtop" not in sides.probed.err


def test_steps_are_measured_in_all_their_phases(sides: Sides) -> None:
    totals = sides.records("totals")

    # 2 epochs of 6 steps in each way, but for those of compiled steps: they hide their optimizer.
    assert sum(record["phase_steps"] for record in totals) > 80
    phases = [name for name in totals[0] if name.endswith("_us") and name != "host_us"]
    assert all(sum(record[name] or 0 for record in totals) > 0 for name in phases)


def test_what_was_compiled_is_told(sides: Sides) -> None:
    told = sides.records("facts")
    compiled = [(f["model"], f["step"]) for f in told if f["subject"] == "compile"]

    assert {(False, False), (True, False), (True, True)} <= set(compiled)
    assert max(f["graphs"] for f in told if f["subject"] == "compile") >= 1


def test_the_scripts_own_hook_is_told(sides: Sides) -> None:
    hooks = [f["comm_hook"] for f in sides.records("facts") if f["subject"] == "ddp"]

    assert [hook for hook in hooks if hook] == ["comm_hook.<locals>.halve"]


def test_precision_is_told(sides: Sides) -> None:
    seen = [f["autocast"] for f in sides.records("facts") if f["subject"] == "precision"]

    assert ("float16" if torch.cuda.is_available() else "bfloat16") in seen
    assert False in seen


@pytest.mark.skipif(not shutil.which("g++"), reason="the default backend needs a compiler")
def test_the_default_backend_compiles_the_same(tmp_path: Path) -> None:
    sides = both(tmp_path, "inductor")

    compare(*sides.lines("inductor"))
    assert sides.records("probe")[-1]["disabled"] is None
