"""The trace analyser on made-up traces whose answers can be worked out on paper."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from score import trace

Event = dict[str, Any]


class Maker:
    """Writes down what a profiler would; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._correlation = 0

    def span(self, name: str, start: float, end: float, kind: str = "user_annotation") -> None:
        event = {"ph": "X", "cat": kind, "name": name, "ts": start, "dur": end - start}
        self.events.append(event)

    def call(self, name: str, start: float, end: float) -> None:
        """A call of the CUDA runtime that launches nothing."""
        self.span(name, start, end, "cuda_runtime")
        self.events[-1]["args"] = {"correlation": -1}

    def run(
        self, name: str, launched: float, start: float, end: float, stream: int = 7, **more: str
    ) -> None:
        """Something on the device, and the call that launched it."""
        self._correlation += 1
        told = {"correlation": self._correlation, "stream": stream, "device": 0}
        self.span(name, start, end, more.get("kind", "kernel"))
        self.events[-1]["args"] = told
        self.span("cudaLaunchKernel", launched, launched + 3, "cuda_runtime")
        self.events[-1]["args"] = {"correlation": self._correlation}

    def autograd(self, start: float, end: float) -> None:
        self.span("autograd::engine::evaluate_function: AddmmBackward0", start, end, "cpu_op")

    def load(self, start: float, end: float) -> None:
        self.span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, end)


def gpu_step(maker: Maker, number: int, t: float, comm: str = "ncclDevKernel_AllReduce") -> None:
    """A step of 10,000 microseconds from the end of one all-reduce to the end of the next.

    Relative to `t`, on the device: the loader until 2000, a copy until 2200, forward until 4200,
    backward until 7200, the all-reduce until 8700 of which 1500 are exposed, a copy back until
    9000, the optimizer until 9500. The host has launched all of it by 2600.
    """
    maker.span(f"{trace.STEP}{number}", t, t + 2700)
    maker.load(t, t + 2000)
    maker.run("Memcpy HtoD (Pinned -> Device)", t + 2000, t + 2000, t + 2200, kind="gpu_memcpy")
    maker.run("gemm", t + 2050, t + 2200, t + 4200)
    maker.span(trace.BACKWARD, t + 2100, t + 2500)
    maker.autograd(t + 2110, t + 2300)
    maker.run("gemm_backward", t + 2150, t + 4200, t + 7200)
    maker.run(comm, t + 2250, t + 5000, t + 8700, stream=20)
    maker.run("copy back", t + 2400, t + 8700, t + 9000)
    maker.span("Optimizer.step#SGD.step", t + 2520, t + 2600)
    maker.run("sgd", t + 2550, t + 9000, t + 9500)


def analysed(maker: Maker) -> trace.TraceStep:
    """The last step."""
    return trace.analyse(maker.events)[-1]


def made(comm: str = "ncclDevKernel_AllReduce") -> Maker:
    maker = Maker()
    for number in range(3):
        gpu_step(maker, number, 10_000.0 * number, comm)
    return maker


def test_phases_tile_the_step_on_the_device() -> None:
    # when
    step = analysed(made())
    # then the step ends with the copy back, at 9000, and the host waits in the loader from 0, while
    # the optimizer of the step before runs until -500
    assert step.step == 2
    assert step.step_us == pytest.approx(10_000)
    assert step.phases_us == pytest.approx(
        {
            "data": 2000,
            "forward": 2200,
            "backward": 3000,
            "exposed_comm": 1800,
            "pre_optimizer": 0,
            "optimizer": 500,
            "other": 500,
        }
    )


def test_activity_is_counted_once_and_idle_time_has_a_cause() -> None:
    # when
    step = analysed(made())
    # then
    assert step.compute_us == pytest.approx(2000 + 3000 + 300 + 500)
    assert step.comm_us == pytest.approx(3700)
    assert step.h2d_us == pytest.approx(200)
    assert step.data_idle_us == pytest.approx(2000)
    assert step.launch_idle_us == pytest.approx(500)
    assert step.sync_idle_us == 0


@pytest.mark.parametrize("name", ["ncclKernel_AllReduce_RING_LL_Sum_float", "ncclDevKernel_X"])
def test_old_and_new_names_of_collectives_are_known(name: str) -> None:
    assert analysed(made(name)).phases_us["exposed_comm"] == pytest.approx(1800)


def test_the_first_step_is_left_out_because_its_begin_is_not_in_the_trace() -> None:
    assert [step.step for step in trace.analyse(made().events)] == [1, 2]


def test_a_loader_wait_behind_queued_work_is_no_stall() -> None:
    # given a host in the loader from 1000 to 5000, and a device that is busy until 6000
    maker = Maker()
    for number in range(2):
        t = 10_000.0 * number
        maker.span(f"{trace.STEP}{number}", t, t + 5900)
        maker.load(t + 1000, t + 5000)
        maker.span(trace.BACKWARD, t + 5100, t + 5300)
        maker.autograd(t + 5110, t + 5200)
        maker.run("gemm", t + 5150, t + 6000, t + 16_000)
    # when
    step = analysed(maker)
    # then
    assert step.phases_us["data"] == 0
    assert step.data_idle_us == 0
    assert step.phases_us["backward"] == pytest.approx(10_000)


def test_a_slow_backward_elsewhere_shows_as_exposed_communication() -> None:
    # given an all-reduce that ends 20 ms later than this rank's backward
    maker = Maker()
    for number in range(2):
        t = 40_000.0 * number
        maker.span(f"{trace.STEP}{number}", t, t + 900)
        maker.span(trace.BACKWARD, t + 100, t + 500)
        maker.autograd(t + 110, t + 400)
        maker.run("gemm", t + 200, t + 200, t + 10_200)
        maker.run("ncclDevKernel_AllReduce", t + 300, t + 9_000, t + 30_200, stream=3)
    # then the compute stream waits while the collective's kernel spins
    assert analysed(maker).phases_us["exposed_comm"] == pytest.approx(20_000)


def test_without_synchronisation_nothing_is_exposed() -> None:
    # given two micro-batches, of which only the second is sent
    maker = Maker()
    for number in range(2):
        t = 10_000.0 * number
        maker.span(f"{trace.STEP}{number}", t, t + 900)
        for part in (0.0, 400.0):
            maker.load(t + part, t + part + 10)
            maker.span(trace.BACKWARD, t + part + 100, t + part + 300)
            maker.autograd(t + part + 110, t + part + 200)
            maker.run("gemm", t + part + 150, t + part * 10 + 200, t + part * 10 + 4200)
        maker.run("ncclDevKernel_AllReduce", t + 590, t + 6000, t + 9200, stream=3)
    # when
    step = analysed(maker)
    # then one step, ended by the all-reduce
    assert step.step_us == pytest.approx(10_000)
    assert step.phases_us["exposed_comm"] == pytest.approx(1000)


def test_idle_time_after_a_wait_for_the_device_is_told_from_launch_cost() -> None:
    # given a device that runs dry at 5000: the host reads a result until 5010, and launches the
    # next kernel at 5400; the one after that it launches too late, at 7000
    maker = Maker()
    for number in range(2):
        t = 10_000.0 * number
        maker.span(f"{trace.STEP}{number}", t, t + 9900)
        maker.run("a", t, t + 10, t + 5000)
        maker.call("cudaStreamSynchronize", t + 100, t + 5010)
        maker.run("b", t + 5400, t + 5405, t + 6000)
        maker.span(trace.BACKWARD, t + 6500, t + 9800)
        maker.autograd(t + 6600, t + 7100)
        maker.run("c", t + 7000, t + 7005, t + 10_000)
    # when
    step = analysed(maker)
    # then
    assert step.sync_idle_us == pytest.approx(405)
    assert step.launch_idle_us == pytest.approx(1005)
    assert step.data_idle_us == 0


def test_without_a_device_the_hosts_clock_counts() -> None:
    # given a step on a CPU
    maker = Maker()
    for number in range(2):
        t = 1000.0 * number
        maker.span(f"{trace.STEP}{number}", t, t + 990)
        maker.load(t, t + 100)
        maker.span(trace.BACKWARD, t + 300, t + 800)
        maker.autograd(t + 310, t + 600)
        maker.span("Optimizer.step#Adam.step", t + 850, t + 950)
    # when
    step = analysed(maker)
    # then
    assert step.phases_us == pytest.approx(
        {
            "other": 50,
            "data": 100,
            "forward": 200,
            "backward": 300,
            "exposed_comm": 200,
            "pre_optimizer": 50,
            "optimizer": 100,
        }
    )
    assert step.compute_us is None
    assert step.data_idle_us is None


def test_annotations_on_the_devices_own_track_are_not_the_hosts() -> None:
    # given
    maker = made()
    maker.span(trace.BACKWARD, 0, 29_000, "gpu_user_annotation")
    # then
    assert analysed(maker) == analysed(made())


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_file_is_read_compressed_or_not(tmp_path: Path, suffix: str) -> None:
    # given
    text = json.dumps({"schemaVersion": 1, "traceEvents": made().events})
    path = tmp_path / f"trace{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    # then
    assert trace.load(path) == made().events


def test_an_empty_trace_has_no_steps() -> None:
    assert trace.analyse([]) == []


def test_intervals() -> None:
    assert trace.union([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert trace.subtract([(0, 10)], [(1, 2), (4, 6), (9, 12)]) == [(0, 1), (2, 4), (6, 9)]
    assert trace.clip([(0, 4), (6, 9)], 2, 7) == [(2, 4), (6, 7)]
    assert trace.length([(0, 4), (6, 9)]) == 7
