"""``workloads``: the catalog as it is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchtop.cli import main


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_json_of_a_name_is_that_workload_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads", "--json", "gpt2-small"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert main(["workloads", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)

    assert [workload["name"] for workload in one["workloads"]] == ["gpt2-small"]
    assert one["workloads"][0] in every["workloads"]
    assert len(every["workloads"]) > 1


@pytest.mark.parametrize("words", [["workloads", "nope"], ["workloads", "--json", "nope"]])
def test_an_unknown_name_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr()

    assert told.out == ""
    assert told.err.startswith("torchtop: there is no workload nope")
    assert told.err.count("\n") == 1
