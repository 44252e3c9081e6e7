"""The HTML reports: one file that loads nothing, shows what was recorded, and runs nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from app.made_session import CASES, HOSTILE, make
from htmlreport.made_sweep import cell, sweep
from session.made import session, write
from torchtop.export.source import Source
from torchtop.htmlreport.colours import ink
from torchtop.htmlreport.gather import gather
from torchtop.session.load import load_paths
from torchtop.session.paths import SessionPaths
from torchtop.session.records import latency_bucket

pytest.importorskip("matplotlib")

from torchtop.htmlreport.session_page import session_report
from torchtop.htmlreport.sweep_page import sweep_report

RECORDED = Path(__file__).parents[1] / "fixtures" / "sessions"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}$x^2$" + HOSTILE
VOID = {"meta", "br", "hr", "path", "use"}
SVG_ONLY = {"svg", "g", "path", "use", "defs", "clippath", "rect", "text", "tspan"}
PAGE = {
    "html", "head", "meta", "title", "style", "body", "main", "footer", "h1", "h2", "h3", "p",
    "div", "b", "span", "ul", "li", "i", "figure", "figcaption", "table", "thead", "tbody", "tr",
    "th", "td", "code",
}  # fmt: skip


class Page(HTMLParser):
    """A document taken apart: fails on what a report has no use for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in PAGE | SVG_ONLY, tag
        for name, value in attrs:
            assert not name.startswith("on") and name not in ("src", "srcdoc", "action"), name
            if name == "id":
                self.ids[str(value)] += 1
            if name in ("href", "xlink:href"):
                self.links.append(str(value))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open and self._open[-1] == "h3":
            self.titles.append(data)


def checked(text: str) -> Page:
    """A report that keeps all of its promises."""
    page = Page(text)
    assert "default-src 'none'" in text
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert [name for name, times in page.ids.items() if times > 1] == []
    used = set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(page.ids)
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"@import|url\((?!#)", text)
    assert all(c.isprintable() or c == "\n" for c in text)
    return page


def report(root: Path) -> str:
    return session_report(load_paths(SessionPaths(root)))


@pytest.mark.parametrize("name", ["resnet50-cifar10", "straggler"])
def test_a_recorded_session(name: str) -> None:
    text = report(RECORDED / name)
    page = checked(text)
    assert page.titles == [
        "Throughput",
        "Step latency",
        "Where a step's time goes",
        "Ranks",
        "GPU activity",
        "GPU memory",
        "Power",
        "Verdicts",
        "Loss",
        *(["Accuracy"] if name == "resnet50-cifar10" else []),
        "Distribution of step latency",
        "Host CPU",
    ]
    assert "2 ranks on 2 x NVIDIA H200" in page.text
    assert ("LAUNCH" if name == "resnet50-cifar10" else "STRAGGLER") in page.text
    assert len(text) < 400_000


def test_colours_are_those_of_the_page_in_light_and_dark() -> None:
    text = report(RECORDED / "resnet50-cifar10")
    svg = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert "var(--forward)" in svg and "var(--line1)" in svg
    assert ink("forward") not in text
    colours = set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{3,6})", svg))
    assert colours <= {"#ffffff"}, "a colour that does not follow the page"
    assert "prefers-color-scheme:dark" in text


def test_text_of_a_session_is_text(tmp_path: Path) -> None:
    root = tmp_path / "s"
    shutil.copytree(RECORDED / "straggler", root)
    for file in root.rglob("*.json*"):
        text = file.read_text(encoding="utf-8")
        told = json.dumps(EVIL)[1:-1]
        for name in ("straggler", "NVIDIA H200", "STRAGGLER", '"loss"', '"vm"'):
            text = text.replace(name, f'"{told}"' if name.startswith('"') else told)
        file.write_text(text, encoding="utf-8")
    page = checked(report(root))
    assert "<script>alert(1)</script>" in page.text  # shown, letter for letter


@pytest.mark.parametrize("case", ["hostile", "cpu", "sixteen", "warming", "failed", "old-gpus"])
def test_made_up_sessions_of_all_kinds(case: str, tmp_path: Path) -> None:
    page = checked(report(make(tmp_path / "s", CASES[case], 25)))
    if case == "old-gpus":
        assert "GPU utilization" in page.titles and "GPU activity" not in page.titles
    if case == "sixteen":
        assert "the mean of 16 GPUs" in page.text


def test_a_session_without_a_step_says_so(tmp_path: Path) -> None:
    page = checked(report(session(tmp_path / "s", workload="train.py").root))
    assert "No verdict" in page.text
    assert page.titles == []


def test_what_is_not_known_is_a_dash(tmp_path: Path) -> None:
    paths = session(tmp_path / "s", workload="train.py")
    page = checked(report(paths.root))
    assert page.text.count("–") >= 14
    assert "0.0%" not in page.text and "None" not in page.text and "nan" not in page.text


def test_a_sweep(tmp_path: Path) -> None:
    page = checked(sweep_report(sweep()))
    assert page.titles == [
        "Scaling",
        "Throughput",
        "Where a step's time goes",
        "Energy",
        "What is lost: 2 GPUs",
        "What is lost: 4 GPUs",
    ]
    assert "torchtop sweep resnet50-cifar10 --gpus 1,2,4" in page.text
    assert "4 GPUsCOMM 12%642564,2004,158 to 4,242 (3)60.9567.053.36x4.00x84%" in page.text
    told_of = ("1.88x", "3.36x", "84%", "2,326 to 2,374 (3)", "this machine has 4 GPUs")
    for told in (*told_of, "1 GPU with batch 64"):
        assert told in page.text, told


def test_the_bars_of_a_waterfall_lead_to_what_was_measured() -> None:
    text = sweep_report(sweep())
    (svg,) = re.findall(r'<svg[^>]*aria-label="what 4 GPUs loses.*?</svg>', text, flags=re.DOTALL)
    assert "84.0 %" in svg
    for told in ("-6.0", "-2.0", "-9.5", "+2.5", "-1.0"):
        assert f">{told}<" in svg.replace("\N{MINUS SIGN}", "-")


@pytest.mark.parametrize(
    "odd",
    [
        {"cells": []},
        {"cells": [1, None, {}]},
        {"cells": [{"samples_per_s": {"median": "x"}, "loss": [], "axes": 3, "versions": "y"}]},
        {"settings": None, "command": "x", "notes": [EVIL], "fixed": {EVIL: EVIL}},
        {"workload": EVIL, "host": EVIL, "status": EVIL, "created_at": EVIL},
    ],
)
def test_an_odd_sweep_is_told_as_far_as_it_goes(odd: dict[str, Any]) -> None:
    checked(sweep_report(sweep(**odd)))


def test_hostile_cells_are_text() -> None:
    evil = {"label": EVIL, "reason": EVIL, "verdict": {"kind": EVIL, "share": 0.5}}
    made = cell(2, 2000.0, {"data": 20.0, EVIL: 0.0}, **evil, versions={"torch": EVIL})
    page = checked(sweep_report(sweep(cell(1, 1250.0), made)))
    assert "<script>alert(1)</script>" in page.text


def test_options_make_curves_and_tokens_a_unit() -> None:
    cells = []
    for gpus, amp in ((1, "off"), (1, "on"), (2, "off"), (2, "on")):
        tokens = {"median": 9.0 * gpus, "low": 8.0, "high": 19.0, "runs": 2}
        told = {"axes": {"gpus": gpus, "amp": amp}, "samples_per_s": None, "tokens_per_s": tokens}
        cells.append(cell(gpus, 1000.0 * gpus, id=f"{gpus}{amp}", **told))
    page = checked(sweep_report(sweep(*cells)))
    assert "amp=off" in page.text and "amp=on" in page.text
    assert "tokens/s" in page.text


def test_the_last_launch_of_a_command_is_drawn(tmp_path: Path) -> None:
    # given a launch of steps of 10 ms, and then one of 20 ms
    paths = session(tmp_path / "s", host="host-a")
    for launch in range(2):
        header = {"rank": 0, "world_size": 1, "attempt": launch, "first_attempt": launch}
        write(paths.ranks / f"0-{launch}-9.jsonl", "rank", **header)
    made = [
        {"kind": kind, "first_attempt": launch, **told}
        for launch, us in enumerate((10_000, 20_000))
        for kind, told in (
            ("minute", {"latency": {str(latency_bucket(us)): 5}}),
            ("analysis", {"throughput": {"steps_per_s": 1e6 / us}}),
        )
    ]
    write(paths.history, "analyst", *[r for r in made if r["kind"] == "minute"])
    write(paths.analysis, "analyst", *[r for r in made if r["kind"] == "analysis"])

    gathered = gather(Source(load_paths(paths)))

    assert [(round(ms), count) for ms, count in gathered.latencies] == [(20, 5)]
    assert gathered.rates["steps_per_s"].means() == [50.0]
