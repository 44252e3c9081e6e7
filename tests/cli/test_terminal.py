"""The real screen in a real terminal: watch, switch with a key, lose the line, come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import processes_of, torchtop
from cli.tmux import PANES, Terminal, panes_of, running
from torchtop.session.paths import SessionPaths
from torchtop.session.tail import Tail


def trains(screen: str, workload: str) -> bool:
    header = screen.splitlines()[0]
    return workload in header and "running" in header and "samples/s" in screen


def has_panes(screen: str, size: str) -> bool:
    return panes_of(screen) >= set(PANES[size])


@pytest.mark.fault(11, "attach again after a lost terminal", "the same panes, the whole history")
def test_switch_by_key_then_lose_the_terminal_then_come_back(
    terminals: Callable[[], Terminal],
) -> None:
    terminal = terminals()
    home = terminal.home

    # Given a workload that trains on a large screen, with values in every pane
    terminal.open("run", "--device", "cpu", "--nproc", "2", "slow-loader", "-o", "batch=64")
    screen = terminal.wait_for(lambda s: trains(s, "slow-loader"), "throughput")
    assert has_panes(screen, "large"), screen
    assert "synthetic data" in screen
    assert "r0" in screen
    assert "r1" in screen

    # Then a small one shows its five
    terminal.resize(80, 24)
    terminal.wait_for(lambda s: has_panes(s, "small") and "samples/s" in s, "five panes")

    # When another workload's key is pressed and confirmed
    (first,) = running(home)
    terminal.press("2")
    terminal.wait_for(lambda s: "Stop it and start compute-heavy" in s, "question")
    terminal.press("y")

    # Then the first is gone before the second runs
    terminal.wait_for(lambda s: trains(s, "compute-heavy"), "second workload")
    assert processes_of(first["id"]) == []
    (second,) = running(home)
    assert second["workload"] == "compute-heavy"

    # When the terminal is closed, the training goes on
    terminal.close()
    rank = second["pids"]["ranks"]["0"]
    assert Path(f"/proc/{rank}").exists()
    assert [row["id"] for row in running(home)] == [second["id"]]

    # And whoever comes back sees its history
    terminal.open("attach")
    terminal.wait_for(lambda s: trains(s, "compute-heavy") and "2 ranks up" in s, "history")

    # When it is stopped from a shell, nothing is left
    stopped = torchtop("stop", home=home, cwd=home)
    assert stopped.returncode == 0, stopped.stderr
    assert processes_of(second["id"]) == []
    terminal.wait_for(lambda s: "stopped" in s, "end", 20.0)


TRAIN = """
import time, torch
torch.set_num_threads(1)
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.ones(4)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
print("begins", flush=True)
for x in torch.utils.data.DataLoader(Slow(), batch_size=1):
    net(x).sum().backward(); opt.step(); opt.zero_grad()
"""
"""Waits for data, however busy the machine is: a verdict that comes as an event."""


def history(screen: str) -> list[str]:
    """What the events pane says, without what is of one viewer's time."""
    told = ("supervisor started", "sampler started", "agent started", "2 ranks up", "verdict ")
    lines = [line[line.rindex("   0") :] for line in screen.splitlines() if "   0" in line]
    return [line for line in lines if any(text in line for text in told)]


@pytest.mark.fault(11, "attach again", "the same panes, the whole history")
@pytest.mark.fault(12, "two viewers on one session", "both live; one stop is carried out")
def test_two_viewers_see_the_same_and_stop_once(terminals: Callable[[], Terminal]) -> None:
    # given a run in one terminal, a verdict in its history, and another terminal that joins late
    first, second = terminals(), terminals()
    home = first.home
    (home / "train.py").write_text(TRAIN)
    first.open("run", "--device", "cpu", "--nproc", "2", "train.py")
    judged = lambda s: any("verdict " in line for line in history(s))  # noqa: E731
    screen = first.wait_for(lambda s: judged(s) and "step" in panes_of(s), "a verdict's event")
    (session,) = running(home)
    second.open("attach")
    joined = second.wait_for(lambda s: judged(s) and "step" in panes_of(s), "the history")
    # then both show the same panes and the same history
    assert panes_of(joined) == panes_of(screen) >= set(PANES["large"])
    assert set(history(screen)) <= set(history(joined))
    assert "begins" in joined
    # when both ask for a stop
    for terminal in (first, second):
        terminal.press("x")
    for terminal in (first, second):
        terminal.wait_for(lambda s: "Stop train?" in s or "stopping already" in s, "the question")
    for terminal in (first, second):
        terminal.press("Enter")
    # then both see the end of it, and it was stopped once
    for terminal in (first, second):
        terminal.wait_for(lambda s: "■ stopped" in s.splitlines()[0], "the end")
    events = Tail(SessionPaths(Path(session["directory"])).node().events).poll()
    assert [e["mode"] for e in events if e["kind"] == "stop"] == ["stop"]
    assert processes_of(session["id"]) == []
