"""The small parts of the supervision: the ladder, text, processes, the command line."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.supervised import wait_until
from torchtop.launch import processes, torchrun
from torchtop.launch.interpreter import Interpreter, inspect
from torchtop.launch.ladder import GIVE_UP_S, SWEEP_S, TERM_MARGIN_S, Ladder, Rung
from torchtop.launch.plain_text import last_lines, plain
from torchtop.launch.spec import LaunchError, LaunchSpec
from torchtop.session.paths import SessionPaths


class TestLadder:
    def test_it_only_goes_up_and_twice_is_once(self) -> None:
        ladder = Ladder(20, 8)
        assert ladder.ask(Rung.TERM, 100)
        assert not ladder.ask(Rung.TERM, 101)
        assert not ladder.ask(Rung.SOFT, 102)
        assert ladder.since_s == 100
        assert ladder.ask(Rung.KILL, 103)

    @pytest.mark.parametrize(
        ("rung", "waited", "then"),
        [
            (Rung.NONE, 1e9, None),
            (Rung.SOFT, 19.9, None),
            (Rung.SOFT, 20, Rung.TERM),
            (Rung.TERM, 8, None),
            (Rung.TERM, 8 + TERM_MARGIN_S, Rung.KILL),
            (Rung.SWEEP, SWEEP_S, Rung.KILL),
            (Rung.KILL, 1e9, None),
        ],
    )
    def test_each_rung_has_its_time(self, rung: Rung, waited: float, then: Rung | None) -> None:
        ladder = Ladder(20, 8, rung, since_s=50)
        assert ladder.overdue(50 + waited) is then

    def test_sigkill_is_given_up_on_last(self) -> None:
        ladder = Ladder(20, 8, Rung.KILL, since_s=50)
        assert not ladder.hopeless(50 + GIVE_UP_S - 0.1)
        assert ladder.hopeless(50 + GIVE_UP_S)


class TestPlainText:
    @pytest.mark.parametrize(
        ("raw", "kept"),
        [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bPq#0;2;0\x1b\\after", "after"),
            ("bell\x07 nul\x00 csi\x9b2J", "bell nul csi2J"),
            ("tab\tand\nnewline", "tab\tand\nnewline"),
            ("[bold]markup[/bold]", "[bold]markup[/bold]"),
        ],
    )
    def test_nothing_that_a_terminal_would_obey_is_left(self, raw: str, kept: str) -> None:
        assert plain(raw) == kept

    def test_last_lines_are_what_a_terminal_would_show(self) -> None:
        raw = b"one\ntwo\n 10%|#\r 20%|##\r\n\n\xff\xfe\nlast"
        assert last_lines(raw, 3) == [" 20%|##", "\ufffd\ufffd", "last"]


class TestProcesses:
    @pytest.mark.fault(29, "a reused pid", "no foreign process is ever signalled")
    def test_a_signal_never_reaches_a_process_that_took_over_the_number(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            process = processes.look(child.pid)
            assert process is not None
            # given a record of an earlier process of the same number
            assert not processes.send(child.pid, process.start_ticks - 1, signal.SIGKILL)
            assert child.poll() is None
            # and the right one is reached
            assert processes.send(child.pid, process.start_ticks, signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
        finally:
            child.kill()
            child.wait()

    def test_descendants_are_found_below_their_parents_and_zombies_do_not_run(self) -> None:
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        try:
            wait_until(lambda: len(processes.descendants(child.pid)) == 1, "a grandchild")
            below = {p.pid for p in processes.descendants(os.getpid())}
            assert child.pid in below
            assert below > {p.pid for p in processes.descendants(child.pid)}
            assert child.pid not in {
                p.pid for p in processes.descendants(os.getpid(), without={child.pid})
            }
            child.kill()
            wait_until(lambda: not processes.is_running(child.pid, None), "it is a zombie")
        finally:
            child.communicate()


SPEC = LaunchSpec("name", "train.py", "script", "train.py", ("--lr", "1"), nproc=2)


class TestSpec:
    def test_it_survives_the_file(self) -> None:
        spec = dataclasses.replace(
            SPEC, options={"batch": 16}, env={"A": "ä"}, gpu_uuids=("GPU-1",), steps=3
        )
        assert LaunchSpec.from_json(spec.to_json()) == spec

    @pytest.mark.parametrize("text", ["", "[]", "{}", "null"])
    def test_what_is_none_is_told_in_one_line(self, text: str) -> None:
        with pytest.raises(LaunchError, match="launch file"):
            LaunchSpec.from_json(text)

    @pytest.mark.parametrize(
        ("source", "target", "argv"),
        [
            ("script", "train.py", ["train.py"]),
            ("module", "pkg.train", ["-m", "pkg.train"]),
            ("builtin", "torchtop_workloads.x", ["-m", "torchtop_workloads.x"]),
            ("file", "/home/u/train.py", ["/home/u/train.py"]),
            ("file", "pkg.train", ["-m", "pkg.train"]),
            ("command", "python", ["python"]),
        ],
    )
    def test_a_module_is_run_as_one(self, source: str, target: str, argv: list[str]) -> None:
        assert LaunchSpec("n", "w", source, target).argv == argv  # type: ignore[arg-type]


class TestTorchrun:
    paths = SessionPaths(Path("/sessions/abc"))

    def test_an_older_torchrun_gets_no_flag_that_it_does_not_know(self, tmp_path: Path) -> None:
        # given the sources of two versions of torch
        (tmp_path / "distributed").mkdir()
        run = tmp_path / "distributed" / "run.py"
        found = Interpreter("/x/python", "3.11.1", tmp_path)
        run.write_text('"--nproc-per-node", "--redirects", "--shutdown-timeout"')
        assert "--shutdown-timeout=8" in torchrun.command(SPEC, self.paths, found)
        run.write_text('"--nproc_per_node", "--redirects"')
        command = torchrun.command(SPEC, self.paths, found)
        assert not [x for x in command if "shutdown" in x]
        # PyTorch 1.12 knows underscores alone.
        assert {"--nproc_per_node=2", "--log_dir=/sessions/abc/logs", "--rdzv_id=abc"} <= {*command}

    def test_the_script_comes_after_the_separator(self) -> None:
        command = torchrun.command(SPEC, self.paths, inspect(sys.executable))
        at = command.index("--")
        assert command[at + 1 :] == ["/sessions/abc/stage/rank.py", "train.py", "--lr", "1"]
        assert command[0] == str(Path(sys.executable).absolute())
        assert {"--redirects=3", "--nproc-per-node=2", "--rdzv-id=abc"} <= set(command[:at])

    def test_a_command_takes_torchruns_place(self) -> None:
        spec = dataclasses.replace(SPEC, source="command", target="sh", args=("-c", "x"))
        assert torchrun.command(spec, self.paths, inspect(sys.executable)) == ["sh", "-c", "x"]

    def test_the_environment_has_no_default_of_torchruns_and_no_current_directory(self) -> None:
        inherited = {
            "PET_TEE": "3",
            "PYTHON_EXEC": "/other",
            "PYTHONPATH": ":/a::/b:",
            "HOME": "/h",
        }
        env = torchrun.environment(SPEC, self.paths, inherited)
        assert "PET_TEE" not in env
        assert "PYTHON_EXEC" not in env
        assert env["PYTHONPATH"] == "/a:/b"
        assert env["HOME"] == "/h"
        assert "PYTHONPATH" not in torchrun.environment(SPEC, self.paths, {"PYTHONPATH": ":"})

    def test_the_gpus_are_named_by_uuid_in_the_order_of_the_bus(self) -> None:
        spec = dataclasses.replace(SPEC, device="cuda", gpu_uuids=("GPU-b", "GPU-a"))
        env = torchrun.environment(spec, self.paths, {"CUDA_VISIBLE_DEVICES": "7"})
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
        assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        spec = dataclasses.replace(spec, gpu_uuids=())
        env = torchrun.environment(spec, self.paths, {"CUDA_VISIBLE_DEVICES": "7"})
        assert env["CUDA_VISIBLE_DEVICES"] == "7"

    def test_built_ins_on_the_cpu_share_the_cores(self) -> None:
        built_in = dataclasses.replace(SPEC, source="builtin", target="m")
        cores = len(os.sched_getaffinity(0))
        env = torchrun.environment(built_in, self.paths, {})
        assert env["OMP_NUM_THREADS"] == str(max(1, cores // 2))
        env = torchrun.environment(built_in, self.paths, {"OMP_NUM_THREADS": "5"})
        assert env["OMP_NUM_THREADS"] == "5"
        assert "OMP_NUM_THREADS" not in torchrun.environment(SPEC, self.paths, {})
