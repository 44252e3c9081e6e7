"""Which of a command's Python processes are told of: those that train, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from anyscript.visited import RANK, Visited, run
from torchtop.session.records import PHASE_COLUMNS

pytest.importorskip("torch")

TRAIN = """
import torch
def train(steps, delay=0):
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(steps):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def script(folder: Path) -> Path:
    (folder / "train.py").write_text(TRAIN)
    return folder / "script.py"


def write(script: Path, text: str) -> None:
    script.write_text(dedent(text))


def test_a_process_that_trains_by_itself_is_the_only_rank(session: Visited, script: Path) -> None:
    # given a loader whose workers are started anew, and go backward themselves
    write(
        script,
        """
        import torch
        import train
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 20
            def __getitem__(self, index):
                train.train(1)
                return torch.ones(4)
        if __name__ == "__main__":
            net = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            context = {"num_workers": 1, "multiprocessing_context": "spawn"}
            for batch in torch.utils.data.DataLoader(Data(), **context):
                net(batch).sum().backward()
                optimizer.step()
        """,
    )
    ended = session.run(["script.py", "--lr", "1"], script.parent)
    assert (ended.code, ended.err) == (0, "")
    # then there is one rank, and it tells its steps
    assert session.files == ["0-0", "0-0.process"]
    (header,) = session.records("0-0-*.process.jsonl", "header")
    assert (header["rank"], header["world_size"], header["argv"]) == (0, 1, ["--lr", "1"])
    steps = session.records("0-0-*[0-9].jsonl", "totals")
    assert steps[-1]["to_step"] == 20
    assert all(sum(s[c] for c in PHASE_COLUMNS) == s["host_us"] for s in steps)
    (left,) = session.records("0-0-*.process.jsonl", "exit")
    assert left["code"] is None


def test_a_rank_is_told_from_what_it_starts(session: Visited, script: Path) -> None:
    write(
        script,
        """
        import os, subprocess, sys
        import train
        helper = "import torch, train; train.train(3)"
        subprocess.run([sys.executable, "-c", "import sys; sys.exit(0)"], check=True)
        train.train(3)
        subprocess.run([sys.executable, "-c", helper], check=True)
        """,
    )
    ended = session.run(["script.py"], script.parent, **RANK)
    assert (ended.code, ended.err) == (0, "")
    assert session.files == ["1-0", "1-0.process"]


def test_a_rank_that_only_starts_the_one_that_trains_gives_way(
    session: Visited, script: Path
) -> None:
    write(
        script,
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import train; train.train(3)"], check=True)
        """,
    )
    assert session.run(["script.py"], script.parent, **RANK).code == 0
    headers = session.records("*[0-9].jsonl", "header")
    assert [header["rank"] for header in headers if header["role"] == "rank"] == [1]


def test_a_process_that_replaces_its_program_is_still_told_of(
    session: Visited, folder: Path
) -> None:
    (folder / "torch.py").write_text("__version__ = '0.1'")
    again = "os.execv(sys.executable, [sys.executable, 'script.py', 'again'])"
    text = f"import os, sys, torch\nif sys.argv[1:] != ['again']: {again}\nprint('ran')"
    (folder / "script.py").write_text(text)

    assert session.run(["script.py"], folder, **RANK).out == "ran\n"

    assert session.files == ["1-0-1.process", "1-0.process"]


def test_ranks_that_a_script_spawns_are_told_by_their_own_numbers(
    session: Visited, script: Path
) -> None:
    write(
        script,
        """
        import os, sys
        import torch, train
        import torch.distributed as dist
        import torch.multiprocessing as mp
        def work(rank, how, folder):
            dist.init_process_group("gloo", f"file://{folder}/{how}", rank=rank, world_size=2)
            train.train(5)
            dist.barrier()
            dist.destroy_process_group()
        if __name__ == "__main__":
            for how in ("spawn", "fork"):
                mp.start_processes(work, (how, os.getcwd()), nprocs=2, start_method=how)
        """,
    )
    ended = session.run(["script.py"], script.parent)
    assert (ended.code, ended.out) == (0, ""), ended.err
    # then each way is a launch of its own, of two ranks
    assert session.files == [
        *("0-0", "0-0.process", "0-0.process", "0-1"),
        *("1-0", "1-0.process", "1-0.process", "1-1"),
    ]
    headers = session.records("*-[01]-*[0-9].jsonl", "header")
    assert {header["world_size"] for header in headers if header["role"] == "rank"} == {2}


def test_a_rank_that_fails_before_torch_tells_why(session: Visited, folder: Path) -> None:
    (folder / "script.py").write_text("def load():\n    import nosuchmodule\nload()")

    plain, visited = run(["script.py"], folder), session.run(["script.py"], folder, **RANK)

    assert visited == plain
    (told,) = session.records("1-0-*", "exception")
    assert told["traceback"] == plain.err
    assert [record["code"] for record in session.records("1-0-*", "exit")] == [1]


@pytest.mark.parametrize(
    ("text", "code"), [("import sys; sys.exit(3)", 3), ("exit('no')", 1), ("pass", 0)]
)
def test_a_rank_that_leaves_is_seen_to_leave(
    session: Visited, folder: Path, text: str, code: int
) -> None:
    (folder / "script.py").write_text(text)

    plain, visited = run(["script.py"], folder), session.run(["script.py"], folder, **RANK)

    assert visited == plain
    assert visited.code == code
    assert session.records("1-0-*", "exception") == []
    assert len(session.records("1-0-*", "exit")) == 1


def test_a_torch_that_the_probe_does_not_know_trains(session: Visited, folder: Path) -> None:
    (folder / "torch.py").write_text("__version__ = '0.1'")
    (folder / "script.py").write_text("import torch\nprint(torch.__version__)")

    ended = session.run(["script.py"], folder, **RANK)

    assert (ended.out, ended.err) == ("0.1\n", "")
    assert session.records("1-0-*", "probe")[0]["disabled"]


def test_a_rank_keeps_its_output_apart_from_the_commands(session: Visited, folder: Path) -> None:
    # given a command that sends its output to its own log, and a rank that is redirected by it
    logs = session.stage.root / "logs"
    shared = logs / "command" / "attempt_0" / "0" / "stdout.log"
    shared.parent.mkdir(parents=True)
    (folder / "script.py").write_text("import sys\nprint('out')\nprint('err', file=sys.stderr)")
    env = {**os.environ, **RANK, "PYTHONPATH": session.site, "TORCHTOP_SESSION": "x"}
    with shared.open("wb") as log:
        command = f"{sys.executable} script.py; {sys.executable} script.py > kept; echo shell"
        subprocess.run(
            ["sh", "-c", command], cwd=folder, env=env, stdout=log, stderr=log, check=True
        )
    # then what it says is in its own, but for what the user has sent elsewhere
    own = logs / "ranks" / "attempt_0" / "1"
    assert (own / "stdout.log").read_text() == "out\n"
    assert (own / "stderr.log").read_text() == "err\nerr\n"
    assert (folder / "kept").read_text() == "out\n"
    assert shared.read_text() == "shell\n"
