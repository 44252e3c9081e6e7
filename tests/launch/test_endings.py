"""How a run ended, told from real runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.supervised import Run
from torchtop.session.paths import liveness, read_json

Start = Callable[..., Run]

GLOO = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
up()
"""


def test_a_run_that_completes_is_done(run: Start, tmp_path: Path) -> None:
    # given a working directory whose modules would break any Python that imports them, and
    # arguments that torchrun would take for its own
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("json", "queue", "socket", "psutil", "torchtop"):
        (hostile / f"{name}.py").write_text("raise RuntimeError('a module of the user')")
    arguments = ("--n", "5", "--", "-m", "--nproc-per-node=9")
    # when two ranks reduce over gloo and end
    session = run(
        GLOO
        + """
value = torch.ones(1)
dist.all_reduce(value)
seen = {"sum": value.item(), "argv": sys.argv[1:], "cwd": os.getcwd()}
seen["env"] = {k: v for k, v in os.environ.items() if k.startswith(("TORCHTOP_", "CUDA_", "PET_"))}
(root / f"seen-{rank}").write_text(json.dumps(seen))
dist.destroy_process_group()
""",
        *arguments,
        cwd=str(hostile),
    )
    events = session.ended()
    # then it is done, and each rank saw what it should
    assert session.exit["cause"] == "completed", session.exit
    assert events[-1]["status"] == "done"
    exits = sorted((e["rank"], e["code"]) for e in events if e["kind"] == "rank_exit")
    assert exits == [(0, 0), (1, 0)]
    for rank in (0, 1):
        seen = session.read(f"seen-{rank}")
        assert seen["sum"] == 2
        assert seen["argv"] == list(arguments)
        assert seen["cwd"] == str(hostile)
        assert seen["env"]["TORCHTOP_SESSION"] == session.paths.id
        assert seen["env"]["TORCHTOP_DEVICE"] == "cpu"
        assert seen["env"]["CUDA_VISIBLE_DEVICES"] == ""
    # and the helpers worked in that directory too, and nothing is left
    assert len(session.pids("sampler", "analyst", "agent", "rank")) == 5
    assert (session.paths.root / "supervisor.log").read_text() == ""
    assert session.paths.node().devices.is_file()
    assert session.paths.analysis.is_file()
    assert session.paths.summary.is_file()
    assert session.living() == []
    assert liveness(session.paths) == "ended"
    meta = read_json(session.paths.meta) or {}
    assert meta["versions"]["torch"].startswith("2.")
    assert meta["argv"][1:] == list(arguments)


def test_the_rank_that_raised_is_named_and_not_its_victim(run: Start) -> None:
    # given rank 1 raising while rank 0 waits for it
    session = run(
        GLOO
        + """
if rank == 1:
    raise ValueError("bad \\x1b[31mvalue")
dist.all_reduce(torch.ones(1))
"""
    )
    session.ended()
    # then the blame is right, in plain text, with the traceback of the script
    exit = session.exit
    assert (exit["cause"], exit["rank"], exit["code"]) == ("exception", 1, 1)
    assert exit["message"] == "rank 1 failed: ValueError: bad value"
    assert "train.py" in exit["traceback"]
    assert any("ValueError" in line for line in exit["log_tail"])
    assert session.events("end")[0]["status"] == "failed"


@pytest.mark.fault(17, "exit(0) on one rank, early", "the early leaver is blamed")
def test_a_rank_that_leaves_early_is_named_and_not_the_one_that_fails_on_it(run: Start) -> None:
    session = run(
        GLOO
        + """
if rank == 1:
    sys.exit(0)
dist.all_reduce(torch.ones(1))
"""
    )
    session.ended()
    assert (session.exit["cause"], session.exit["rank"]) == ("exit_code", 1)
    assert session.exit["message"].startswith("rank 1 left early with status 0")


@pytest.mark.fault(17, "os._exit(7) on one rank", "code and rank named")
def test_an_exit_code_is_named(run: Start) -> None:
    session = run("up()\nif rank == 1: os._exit(7)\ntime.sleep(1000)")
    session.ended()
    exit = session.exit
    assert (exit["cause"], exit["rank"], exit["code"]) == ("exit_code", 1, 7)
    assert exit["message"] == "rank 1 exited with status 7"
    assert session.living() == []


def test_a_signal_is_named(run: Start) -> None:
    session = run("up()\nif rank == 1: os.kill(os.getpid(), signal.SIGSEGV)\ntime.sleep(1000)")
    session.ended()
    exit = session.exit
    assert (exit["cause"], exit["rank"], exit["signal"]) == ("signal", 1, "SIGSEGV")
    crash = next(e for e in session.events("rank_exit") if e["rank"] == 1)
    assert (crash["code"], crash["signal"]) == (-11, "SIGSEGV")


@pytest.mark.fault(21, "an import that fails", "one line")
def test_an_import_error_of_the_script_is_its_exception(run: Start) -> None:
    session = run("import no_such_module_anywhere")
    session.ended()
    assert session.exit["cause"] == "exception"
    assert "no_such_module_anywhere" in session.exit["message"]


def test_the_number_of_steps_ends_a_script_as_done(run: Start) -> None:
    # given a script that would train for ever
    session = run(
        """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            time.sleep(0.01)
        """,
        nproc=1,
        steps=20,
    )
    events = session.ended()
    assert [e["why"] for e in events if e["kind"] == "stop"] == ["steps"]
    assert session.exit["cause"] == "steps"
    assert events[-1]["status"] == "done"
    assert session.living() == []
