"""``torchtop inspect`` on real ranks that train."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from launch.supervised import Run, wait_until
from torchtop.cli import main
from torchtop.session.tail import Tail

torch = pytest.importorskip("torch")

Start = Callable[..., Run]

TRAIN = """
import torch
device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
torch.set_num_threads(1)
model = torch.nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 8))
up()
while True:
    for (x,) in torch.utils.data.DataLoader(data, 4):
        loss = model(x.to(device)).sum()
        loss.backward()
        loss.item()
        optimizer.step()
        time.sleep(0.01)
"""


def test_the_ranks_of_a_live_run_inspect_a_step(
    run: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    session = run(TRAIN, device="cuda" if torch.cuda.is_available() else "cpu")
    session.started(2)
    files = session.paths.ranks.glob
    wait_until(lambda: len([f for f in files("*.jsonl") if "process" not in f.name]) == 2, "begun")
    wait_until(lambda: all(Tail(file).poll()[2:] for file in files("[01]-0-*[0-9].jsonl")), "told")
    # when a step is to be inspected
    assert main(["inspect", "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    # then every rank has answered: with the line, or that there is no GPU
    assert [one["rank"] for one in ranks] == [0, 1]
    if torch.cuda.is_available():
        texts = [call["text"] for one in ranks for call in one["calls"]]
        assert texts.count("loss.item()") == 2
    else:
        assert {one["problem"] for one in ranks} == {"nothing to inspect: no CUDA"}
    # and who asked is on record
    assert [event["requested_by"] for event in session.events("inspect")] == ["command line"]
    # and it is told in words too, for all ranks at once
    assert main(["inspect", session.paths.id]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("ranks 0-1")
    assert "inspecting one step of each rank" in told.err
    assert session.events("rank_exit") == []
    # when it has ended, there is nothing to inspect
    assert main(["stop"]) == 0
    capsys.readouterr()
    assert main(["inspect", session.paths.id]) != 0
    assert "is not running" in capsys.readouterr().err
