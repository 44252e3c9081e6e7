"""The sampler as a process of its own."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devices.waiting import PATIENCE_S, until
from torchtop.devices.model import METRICS
from torchtop.devices.ranks import read_usage
from torchtop.session import records

ROOTS = [str(Path(__file__).parents[2] / "tui"), str(Path(__file__).parents[1])]

_PREAMBLE = f"import sys; sys.path[:0] = {ROOTS!r}\n"
_MAIN = "from torchtop.devices.sampler import main; sys.exit(main())\n"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "node" / "devices.jsonl"


@pytest.fixture
def start(output: Path) -> Iterator[Start]:
    """Starts samplers; `fake` is Python that leaves a fake driver in the name `driver`."""
    started = []
    output.parent.mkdir()

    def starter(*arguments: str, fake: str = "", **options: Any) -> subprocess.Popen[str]:
        if fake:
            fake = (
                "from devices.fake_pynvml import FakePynvml, pynvml\n"
                f"{fake}\nsys.modules['pynvml'] = driver\n"
            )
        process = subprocess.Popen(
            [sys.executable, "-c", _PREAMBLE + fake + _MAIN, "--output", str(output), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def read(output: Path, kind: str | None = None) -> list[dict[str, Any]]:
    if not output.exists():
        return []
    lines = output.read_bytes().split(b"\n")[:-1]
    return [record for record in map(json.loads, lines) if kind in (None, record["kind"])]


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    text, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, text


def has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def test_records_have_the_shape_of_the_schema(start: Start, output: Path) -> None:
    assert finished(start("--interval", "0.2", "--count", "3")) == (0, "")

    found = read(output)
    assert [record["seq"] for record in found] == list(range(len(found)))
    assert [record["kind"] for record in found] == [
        "header",
        "tick",
        "processes",
        "tick",
        "tick",
    ]
    header, last = found[0], found[-1]
    assert header["role"] == "sampler"
    assert header["schema"] == records.SCHEMA
    assert header["tick_s"] == 0.2
    assert header["cpu_count"] == os.cpu_count()
    assert header["memory_total_bytes"] > 1 << 20
    assert set(last) == {"kind", "seq", "mono_ns", "gpus", "host"}
    assert tuple(last["gpus"]) == METRICS
    assert set(last["host"]) == {
        "cpu_percent",
        "cpu_percent_per_core",
        "load_1m",
        "memory_used_bytes",
        "disk_read_bytes_per_s",
        "disk_write_bytes_per_s",
        "net_rx_bytes_per_s",
        "net_tx_bytes_per_s",
    }
    assert last["host"]["cpu_percent"] is not None
    assert found[2]["ranks"] == []


@pytest.mark.fault(32, "no NVML", "told; the host is still sampled")
@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_the_host_is_sampled_and_the_reason_told(start: Start, output: Path) -> None:
    finished(start("--interval", "0.2", "--count", "2"))

    header, tick = read(output)[0], read(output, "tick")[-1]
    assert header["gpus"] == []
    assert header["driver"] is None
    assert "NVIDIA driver" in header["nvml_error"]
    assert tick["gpus"] == {metric: [] for metric in METRICS}
    assert tick["host"]["memory_used_bytes"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_told_to(start: Start, output: Path, number: int) -> None:
    process = start("--interval", "3600")
    until(lambda: read(output, "tick"))

    process.send_signal(number)

    assert finished(process) == (0, "")
    assert output.read_bytes().endswith(b"\n")


def test_usr1_gives_the_process_list_at_once(start: Start, output: Path) -> None:
    # With an hour between ticks nothing else can bring another record.
    process = start("--interval", "3600")
    until(lambda: len(read(output, "processes")) == 1)

    process.send_signal(signal.SIGUSR1)

    until(lambda: len(read(output, "processes")) == 2)
    assert process.poll() is None


def test_ranks_are_in_the_process_list(start: Start, output: Path, tmp_path: Path) -> None:
    # Given a rank (this very process) that has left its header
    folder = tmp_path / "ranks"
    folder.mkdir()
    records.Appender(folder / f"1-0-{os.getpid()}.process.jsonl", "process", rank=1).close()

    finished(start("--ranks-dir", str(folder), "--count", "1"))

    (rank,) = read(output, "processes")[0]["ranks"]
    assert (rank["rank"], rank["process_pid"]) == (1, os.getpid())


def test_it_ends_with_its_parent(output: Path) -> None:
    # Given a parent that starts a sampler and is then killed
    output.parent.mkdir()
    code = (
        _PREAMBLE + "import os, subprocess, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {_PREAMBLE + _MAIN!r}, '--output',"
        f" {str(output)!r}, '--interval', '3600', '--parent', str(os.getpid())])\n"
        "print(child.pid, flush=True); child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    sampler = int(parent.stdout.readline())
    until(lambda: read(output, "tick"))
    assert read_usage(sampler) is not None

    parent.kill()

    until(lambda: read_usage(sampler) is None)
    parent.communicate()


def test_it_does_not_start_for_a_parent_that_is_gone(start: Start, output: Path) -> None:
    assert finished(start("--parent", "1" if os.getpid() != 1 else "2"))[0] == 0
    assert not output.exists()


def test_it_ends_when_its_folder_goes(start: Start, output: Path) -> None:
    process = start("--interval", "0.2")
    until(lambda: read(output, "tick"))

    shutil.rmtree(output.parent)

    assert finished(process) == (1, "")


def test_it_ends_when_the_file_cannot_grow(start: Start, output: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    assert finished(start("--interval", "0.2", preexec_fn=limit)) == (1, "")
    assert len(read(output)) > 1


def test_a_file_that_exists_is_left_alone(start: Start, output: Path) -> None:
    output.write_text("someone else's\n")

    status, text = finished(start())

    assert status == 1
    assert text.count("\n") == 1
    assert "cannot create" in text
    assert output.read_text() == "someone else's\n"


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "soon"])
def test_a_senseless_interval_is_refused(start: Start, interval: str) -> None:
    status, text = finished(start("--interval", interval))

    assert status == 2
    assert "--interval" in text
    assert "Traceback" not in text


@pytest.mark.fault(32, "a GPU is lost", "its row is empty; nothing else stops")
def test_a_gpu_lost_in_mid_run_leaves_the_other_alive(start: Start, output: Path) -> None:
    fake = (
        "class LosesOne(FakePynvml):\n"
        "    def __getattr__(self, name):\n"
        "        if self.calls['nvmlDeviceGetPowerUsage', 0] == 1:\n"
        "            self.failures['nvmlDeviceGetPowerUsage', 0] = pynvml.NVML_ERROR_GPU_IS_LOST\n"
        "        return super().__getattr__(name)\n"
        "driver = LosesOne(gpus=2)\n"
    )

    assert finished(start("--interval", "0.2", "--count", "3", fake=fake)) == (0, "")

    ticks = read(output, "tick")
    assert ticks[0]["gpus"]["power_w"] == [186.5, 186.5]
    assert ticks[2]["gpus"]["power_w"] == [None, 186.5]
    assert ticks[2]["gpus"]["sm_active"] == [None, 0.5]
    assert ticks[0]["gpus"]["energy_j"] == [12345.0, 12345.0]
    assert ticks[1]["gpus"]["energy_j"] == [None, None]


def test_the_energy_counter_is_read_once_more_at_the_end(start: Start, output: Path) -> None:
    process = start("--interval", "3600", fake="driver = FakePynvml(gpus=1)")
    until(lambda: read(output, "processes"))

    process.terminate()

    assert finished(process) == (0, "")
    assert [tick["gpus"]["energy_j"] for tick in read(output, "tick")] == [[12345.0], [12345.0]]


@pytest.mark.fault(32, "a driver call hangs", "nothing else stops")
def test_a_driver_that_hangs_stops_neither_the_host_nor_the_end(start: Start, output: Path) -> None:
    # Given a driver that answers until the first tick is over, and never again
    fake = (
        "class Hangs(FakePynvml):\n"
        "    def __getattr__(self, name):\n"
        "        if self.calls['nvmlDeviceGetClockInfo', 0] == 1:\n"
        "            self.hang.clear()\n"
        "        return super().__getattr__(name)\n"
        "driver = Hangs(gpus=1)\n"
    )
    process = start("--interval", "0.2", fake=fake)

    until(lambda: len(read(output, "tick")) >= 3)

    tick = read(output, "tick")[-1]
    assert tick["gpus"]["util_percent"] == [None]
    assert tick["host"]["cpu_percent"] is not None
    assert [record["gpus"] for record in read(output, "processes")] == [[None]]
    process.terminate()
    assert finished(process) == (0, "")
