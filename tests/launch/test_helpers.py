"""The supervisor's helpers, and other people's interpreters."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from launch.supervised import Run, wait_until
from torchtop.launch import boot, helpers, processes
from torchtop.launch.children import Child
from torchtop.launch.spec import LaunchSpec
from torchtop.launch.start import start_session
from torchtop.session.paths import NodePaths
from torchtop.session.records import start_ticks

Start = Callable[..., Run]

SAMPLER = """
import json, signal, sys, time
out, left = open(sys.argv[1], "a", buffering=1), [int(n) for n in sys.argv[2:]]
def told(*_):
    listed = [{"process_pid": left.pop(0)}] if left else []
    out.write(json.dumps({"kind": "processes", "mono_ns": time.monotonic_ns(),
                          "gpus": [None, listed]}) + "\\n")
signal.signal(signal.SIGUSR1, told)
out.write(json.dumps({"kind": "header"}) + "\\n")
while True:
    time.sleep(0.01)
"""
"""A sampler whose driver lists a process of the session as often as it is told to."""


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*listed: int) -> Child:
        devices = str(NodePaths(tmp_path).devices)
        command = [sys.executable, "-c", SAMPLER, devices, *map(str, listed)]
        process = subprocess.Popen(command)
        started.append(process)
        return Child("sampler", process.pid, start_ticks(process.pid))

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.fault(9, "GPU memory that is held after the end", "waited for; told")
def test_the_gpus_are_waited_for_until_the_driver_lists_none_of_ours(
    sampler: Callable[..., Child], tmp_path: Path
) -> None:
    # given a driver that goes on listing 77 for a moment
    child = sampler(77, 77, 5)
    assert helpers.wait_for_free_gpus(child, NodePaths(tmp_path), {77, 78}, limit_s=60) == []
    # then it was asked until 77 had gone; 5 is somebody else's
    assert len(NodePaths(tmp_path).devices.read_text().splitlines()) == 4


@pytest.mark.fault(9, "GPU memory that is held after the end", "waited for; told")
def test_what_still_holds_memory_is_told_at_the_end_of_the_limit(
    sampler: Callable[..., Child], tmp_path: Path
) -> None:
    child = sampler(*[77] * 1000)
    assert helpers.wait_for_free_gpus(child, NodePaths(tmp_path), {77}, limit_s=0.5) == [77]


def test_without_a_sampler_nothing_is_waited_for(
    sampler: Callable[..., Child], tmp_path: Path
) -> None:
    child = sampler()
    helpers.end(child, limit_s=60)
    wait_until(lambda: not processes.is_running(child.pid, child.start_ticks), "it ends")
    assert helpers.wait_for_free_gpus(child, NodePaths(tmp_path / "x"), {77}, limit_s=3600) == []


def test_another_interpreter_trains_with_its_own_packages(run: Start, tmp_path: Path) -> None:
    # given an environment with torch but no torchtop and no torchrun script, and a directory whose
    # modules would break torchrun, which an empty element of PYTHONPATH would let it import
    venv.create(tmp_path / "other", with_pip=False)
    python = tmp_path / "other" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    Path(site, "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("json", "queue", "socket"):
        (hostile / f"{name}.py").write_text("raise RuntimeError('a module of the user')")
    # when it runs
    session = run(
        "(root / 'seen').write_text(json.dumps(sys.prefix)); up()",
        nproc=1,
        python=str(python),
        cwd=str(hostile),
        env={"PYTHONPATH": ":"},
    )
    events = session.ended()
    # then it ran in that environment
    assert events[-1]["status"] == "done", session.exit
    assert session.read("seen") == str(tmp_path / "other")
    assert "-c" in session.events("header")[0]["command"]


def test_a_torchrun_that_cannot_begin_says_why(run: Start) -> None:
    # given something that keeps every rank from its first record
    session = run("up()", env={"PYTHONHOME": "/nonexistent"})
    events = session.ended()
    assert session.exit["cause"] == "launch_failed"
    assert events[-1]["status"] == "failed"
    assert session.exit["log_tail"]


def test_a_command_of_the_users_is_run_as_it_is(state_home: Path, tmp_path: Path) -> None:
    words = ("-c", 'echo "in $TORCHTOP_SESSION"; exit 3')
    spec = LaunchSpec("test", "sh", "command", "sh", words, cwd=str(tmp_path))
    session = Run(start_session(spec))
    session.ended()
    assert (session.exit["cause"], session.exit["code"]) == ("exit_code", 3)
    assert session.exit["log_tail"] == [f"in {session.paths.id}"]


def test_the_launching_side_imports_neither_torch_nor_textual() -> None:
    code = dedent("""
        import sys
        import torchtop.launch.start, torchtop.launch.supervisor, torchtop.launch.analyst
        loaded = {name.split(".")[0] for name in sys.modules}
        print(*sorted(loaded & {"torch", "textual", "pynvml"}))
    """)
    env = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.strip() == ""


def test_our_own_processes_start_among_hostile_modules(tmp_path: Path) -> None:
    # given a directory, on PYTHONPATH and the current one, that breaks whoever imports from it
    for name in ("json", "signal", "ctypes", "sitecustomize", "torchtop"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a module of the user')")
    # when the supervisor is started there, for a session that does not exist
    done = subprocess.run(
        boot.command("torchtop.launch.supervisor", str(tmp_path / "none")),
        cwd=tmp_path,
        env={"PYTHONPATH": f":{tmp_path}", "PYTHONSTARTUP": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    # then it got as far as saying so, in one line
    assert done.stdout.splitlines() == [
        f"torchtop: cannot read {tmp_path}/none/stage/launch.json: No such file or directory"
    ]
    assert done.stderr == ""
