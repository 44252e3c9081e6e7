"""Sweeps over workloads of a torchtop.toml, by their real command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.command import torchtop

SCRIPT = """
import argparse, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), args.lr)
while True:
    opt.zero_grad(); net(torch.ones(2, 4)).sum().backward(); opt.step()
    time.sleep(0.0005)
"""
OWN = """
[workloads.mine]
script = "endless.py"
nproc = 1
options = { lr = 0.1 }

[workloads.commanded]
command = ["PYTHON", "endless.py"]
options = { lr = 0.1 }
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "endless.py").write_text(SCRIPT)
    (tmp_path / "torchtop.toml").write_text(OWN.replace("PYTHON", sys.executable))
    (tmp_path / "torchtop.toml").chmod(0o600)
    return tmp_path


def swept(home: Path, *words: str) -> dict[str, Any]:
    """The table of a sweep that has ended well."""
    done = torchtop(
        *("sweep", *words, "--yes", "--json", "--device", "cpu", "--warmup", "4"),
        home=home,
        cwd=home,
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_endless_script_is_measured_for_so_long_and_then_for_as_many_steps(home: Path) -> None:
    # given a script that trains for ever, in steps of about a millisecond, and says how many ranks
    words = ["mine", "--seconds", "3", "--repeats", "2", "--spread", "0"]
    # when it is measured for 3 s
    (cell,) = swept(home, *words)["cells"]
    # then there is the rank that its file asks for
    assert (cell["label"], cell["gpus"], cell["nproc"]) == ("1 rank", 1, 1)
    # and its first run took these, its other one had as many steps, and both are done
    first, second = (run["measured"] for run in cell["runs"])
    assert [run["status"] for run in cell["runs"]] == ["done", "done"]
    assert first["steps"] * first["step_ms"] >= 2000
    assert second["steps"] >= 0.9 * first["steps"]


def test_of_a_command_the_ranks_that_were_seen_are_told(home: Path) -> None:
    table = swept(home, "commanded", "-o", "lr=0.1,0.2", "--steps", "30", "--repeats", "1")

    assert [cell["label"] for cell in table["cells"]] == ["lr=0.1", "lr=0.2"]
    for cell in table["cells"]:
        assert cell["status"] == "measured", cell["reason"]
        assert (cell["gpus"], cell["nproc"]) == (1, 1)
