"""What the probe's thread writes, and how it bears a full disk, a fork and faults of its own."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probe.marks import passed
from torchtop.probe import allowance
from torchtop.probe import writer as writer_module
from torchtop.probe.writer import Writer, next_stride, totals
from torchtop.session.records import PHASE_COLUMNS, is_recorded
from torchtop.session.tail import Tail


def row(step: int, **changes: Any) -> dict[str, Any]:
    """A step of 700 microseconds: 100 in each phase."""
    columns = dict.fromkeys(writer_module._COLUMNS)
    made = {**columns, "step": step, "end_ns": step * 10**6, "host_us": 700, "samples": 8}
    return {**made, **dict.fromkeys(PHASE_COLUMNS, 100), "data_host_us": 90, **changes}


class Source:
    """The probe, as the writer sees it."""

    def __init__(self) -> None:
        self.disabled: str | None = None
        self.broken: Exception | None = None
        self.memory_told: dict[str, Any] | None = None
        self.stride, self.spent = 1, 0

    def disable(self, why: str | BaseException) -> None:
        self.disabled = str(why)

    def attend(self) -> None:
        self.attended = True

    def beat(self) -> dict[str, Any]:
        if self.broken is not None:
            raise self.broken
        return {"marker": "B0", "marker_ns": 1, "step": 2, "ready": None}

    def record_one_in(self, stride: int) -> None:
        self.stride = stride

    def spent_ns(self) -> int:
        return self.spent

    def memory(self) -> dict[str, Any] | None:
        return self.memory_told

    def cost(self) -> dict[str, Any]:
        return {"cost_us": 5, "steps": 1, "cost_share": 0.001, "disabled": self.disabled}


def eventually(true: Callable[[], Any]) -> None:
    """Wait for something that another thread will do."""
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0-0-1.jsonl"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_INTERVAL_S", 0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is queued is written at the end alone, however long the queueing takes."""
    monkeypatch.setattr(writer_module, "_INTERVAL_S", 3600.0)


@pytest.fixture
def writer(path: Path, source: Source) -> Iterator[Writer]:
    made = Writer(path, {"rank": 0}, source)
    yield made
    made.finish()


def read(path: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in Tail(path).poll() if record["kind"] == kind]


def recorded(path: Path) -> list[int]:
    return [step for record in read(path, "steps") for step in record["step"]]


@pytest.mark.usefixtures("patient")
def test_what_is_queued_is_written_at_the_end(path: Path, writer: Writer, source: Source) -> None:
    source.memory_told = {"peak_bytes": 7}
    writer.facts.append({"subject": "ddp", "parameters": 3})
    for step in range(1, 31):
        writer.put(*passed(step))
    writer.scalars.extend([(3, "loss", 0.5), (3, "accuracy", 0.1), (9, "loss", float("nan"))])

    writer.finish()

    (steps,) = read(path, "steps")
    assert steps["stride"] == 1
    assert steps["step"] == list(range(1, 31))
    assert steps["forward_us"] == [100] * 30
    assert steps["tokens"] == [None] * 30
    (total,) = read(path, "totals")
    assert (total["from_step"], total["to_step"], total["steps"]) == (1, 31, 30)
    assert (total["host_us"], total["data_us"], total["data_host_us"]) == (21_000, 3_000, 3_000)
    assert (total["samples"], total["tokens"], total["phase_steps"]) == (240, None, 30)
    assert [(s["step"], s["values"]) for s in read(path, "scalars")] == [
        (3, {"loss": 0.5, "accuracy": 0.1}),
        (9, {"loss": None}),
    ]
    assert [fact["parameters"] for fact in read(path, "facts")] == [3]
    assert [memory["peak_bytes"] for memory in read(path, "memory")] == [7]
    (told,) = read(path, "probe")
    assert (told["dropped"], told["disabled"], told["cost_share"]) == (0, None, 0.001)
    (spoilt,) = read(path, "not_finite")
    assert (spoilt["step"], spoilt["name"], spoilt["value"]) == (9, "loss", "nan")
    assert [record["seq"] for record in Tail(path).poll()] == list(range(10))


@pytest.mark.usefixtures("quick")
def test_it_is_written_while_training_goes_on(path: Path, writer: Writer) -> None:
    writer.put(*passed(1))
    eventually(lambda: recorded(path) == [1])
    writer.put(*passed(2))
    eventually(lambda: recorded(path) == [1, 2])
    eventually(lambda: len(read(path, "beat")) > 3)

    assert sum(total["steps"] for total in read(path, "totals")) == 2


@pytest.mark.usefixtures("patient")
def test_a_fact_that_was_told_is_not_told_again(path: Path, writer: Writer) -> None:
    for workers in (2, 2, 4, 4, 2):
        writer.facts.append({"subject": "loader", "loader": 0, "workers": workers})
        writer.facts.append({"subject": "loader", "loader": 1, "workers": 0})
    writer.finish()
    told = [(fact["loader"], fact["workers"]) for fact in read(path, "facts")]
    assert told == [(0, 2), (1, 0), (0, 4), (0, 2)]


@pytest.mark.usefixtures("patient")
def test_when_its_bytes_are_spent_it_tells_less_and_counts_all_the_same(
    path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file that may take no more
    monkeypatch.setattr(allowance, "_BURST_BYTES", -1e9)
    monkeypatch.setattr(writer_module, "_ALL_OF_THE_FIRST", 0)
    writer._rate_from = (time.monotonic() - 100, 0, 0)
    # when 100 steps a second come, each with its loss
    for step in range(1, 10_001):
        writer.put(*passed(step))
        writer.scalars.append((step, "loss", step / 2))
    writer.finish()
    # then at most four of them a second are recorded, all are counted, and the last loss is told
    (steps,) = read(path, "steps")
    assert steps["stride"] == 32
    assert sum(total["steps"] for total in read(path, "totals")) == 10_000
    assert [(s["step"], s["values"]) for s in read(path, "scalars")] == [(10_000, {"loss": 5000.0})]


@pytest.mark.usefixtures("patient")
def test_totals_cover_all_steps_although_few_are_recorded(path: Path, writer: Writer) -> None:
    writer._stride = 8
    for step in range(100, 1100):
        writer.put(*passed(step))

    writer.finish()

    kept = recorded(path)
    assert kept == [step for step in range(100, 1100) if is_recorded(step, 8)]
    assert 100 < len(kept) < 150
    (total,) = read(path, "totals")
    assert (total["steps"], total["host_us"]) == (1000, 700_000)


@pytest.mark.parametrize(
    ("rate", "stride"),
    [(0.1, 1), (19.9, 1), (20.1, 2), (39, 2), (41, 4), (1000, 64), (100_000, 8192)],
)
def test_at_most_about_twenty_steps_a_second_are_recorded(rate: float, stride: int) -> None:
    assert next_stride(1, rate, share=0.0) == stride
    assert rate / stride <= 20


def test_a_stride_that_holds_about_is_kept() -> None:
    assert next_stride(4, 60, 0.0) == 4  # 15 a second, and 30 with half the stride
    assert next_stride(4, 30, 0.0) == 4  # 15 with half of it: not well below
    assert next_stride(4, 27, 0.0) == 2
    assert next_stride(64, 1, 0.0) == 1


def test_what_costs_too_much_is_recorded_less_often() -> None:
    # Given launch-bound jobs of 30 and of 17 steps a second, in which full markers cost 1.4 %
    assert next_stride(1, 30, share=0.014) == 8  # 3.8 a second: a step costs less than it may
    assert next_stride(1, 17, share=0.014) == 8  # 2.1 a second: half of that would be too few
    # And where a step costs less than it may, no fewer than four a second
    assert next_stride(1, 60, share=0.009) == 8
    # Then a job of long steps is recorded whole, whatever it costs, for there is no choice
    assert next_stride(1, 3, share=0.014) == 1
    # And one that takes 0.29 % is still measured less where that is more than a step may cost
    assert next_stride(1, 17, share=0.0029) == 2
    assert next_stride(1, 17, share=0.0019) == 1
    # And what has become cheap enough is left alone until it is well below the budget
    assert next_stride(4, 30, share=0.0025) == 4
    assert next_stride(4, 20, share=0.0005) == 2


@pytest.mark.parametrize("steps_per_s", [18.0, 38.0, 50.0, 300.0])
def test_the_cost_of_a_step_settles_below_what_it_may_be(steps_per_s: float) -> None:
    # Given what the probe takes of a step that is measured, of those beside it, and of the others
    measured_us, beside_us, other_us = 400.0, 150.0, 36.0

    def cost_us(stride: int) -> float:
        steps = [step for step in range(4096) if is_recorded(step, stride)]
        beside = {n for step in steps for n in (step - 1, step + 1)}.difference(steps)
        others = 4096 - len(steps) - len(beside)
        return (len(steps) * measured_us + len(beside) * beside_us + others * other_us) / 4096

    # When it chooses how many it measures, again and again
    chosen = [1]
    for _ in range(4):
        share = cost_us(chosen[-1]) * steps_per_s / 1e6
        chosen.append(next_stride(chosen[-1], steps_per_s, share))

    # Then that is settled at the first choice or the second, within 150 us on average
    assert chosen[2:] == [chosen[2]] * 3
    assert cost_us(chosen[1]) < 190
    assert cost_us(chosen[2]) < 150
    assert steps_per_s / chosen[2] >= 2


def test_the_first_steps_are_all_recorded(path: Path, writer: Writer, source: Source) -> None:
    source.spent = 10**12
    for step in range(writer_module._ALL_OF_THE_FIRST - 1):
        writer.put(*passed(step))
    writer.finish()

    assert source.stride == 1
    assert len(recorded(path)) == writer_module._ALL_OF_THE_FIRST - 1


@pytest.mark.usefixtures("patient")
def test_the_stride_is_chosen_over_seconds(
    path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_RATE_OVER_S", 0.0)
    for step in range(5000):
        writer.put(*passed(step))

    writer.finish()

    (steps,) = read(path, "steps")
    assert steps["stride"] > 16


def test_sums_skip_what_is_unknown() -> None:
    told = totals([row(5, samples=None, tokens=10), row(7, samples=4, tokens=None)])

    assert (told["samples"], told["tokens"], told["steps"]) == (4, 10, 2)
    assert (told["from_step"], told["to_step"]) == (5, 8)


@pytest.mark.usefixtures("patient")
def test_steps_that_are_never_written_are_counted(path: Path, writer: Writer) -> None:
    _, marks = passed(0)
    for step in range(writer_module._QUEUE + 7):
        writer.put(step, marks)

    writer.finish()

    (told,) = read(path, "probe")
    assert told["dropped"] == 7


@pytest.mark.usefixtures("quick")
def test_a_disk_that_is_full_for_a_while_costs_only_what_it_refused(
    path: Path, writer: Writer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.put(*passed(1))
    eventually(lambda: recorded(path) == [1])
    real, refused = os.write, threading.Event()

    def full(fd: int, data: bytes) -> int:
        if fd != writer._file._fd:
            return real(fd, data)
        refused.set()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        writer.facts.append({"subject": "ddp", "parameters": 3})
        writer.put(*passed(2))
        eventually(refused.is_set)
    writer.put(*passed(3))
    writer.finish()

    assert source.disabled is None
    assert set(recorded(path)) >= {1, 3}
    assert [fact["parameters"] for fact in read(path, "facts")] == [3]
    assert read(path, "probe")[-1]["dropped"] == 3 - len(recorded(path))


def test_a_directory_that_vanishes_holds_nothing_up(path: Path, writer: Writer) -> None:
    shutil.rmtree(path.parent)
    writer.put(*passed(1))

    writer.finish()

    assert not path.exists()


@pytest.mark.usefixtures("quick")
def test_a_fault_of_its_own_ends_the_probe_with_its_reason(
    path: Path, writer: Writer, source: Source
) -> None:
    source.broken = ValueError("boom")
    eventually(lambda: not writer._thread.is_alive())

    assert source.disabled == "boom"
    (*_, told) = read(path, "probe")
    assert told["disabled"] == "boom"
    writer.finish()


@pytest.mark.usefixtures("quick")
def test_a_probe_that_took_itself_out_says_so_and_beats_no_more(
    path: Path, writer: Writer, source: Source
) -> None:
    source.disabled = "ValueError: no such loader"
    eventually(lambda: not writer._thread.is_alive())

    assert read(path, "probe")[-1]["disabled"] == "ValueError: no such loader"


def test_a_fork_leaves_the_file_to_its_parent(path: Path, writer: Writer) -> None:
    writer.put(*passed(1))
    # The worst moment for a fork: a lock is held by a thread that the child will not have.
    with writer._lock, writer._stop._cond:
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # it must not wait for a thread that is not there
            writer.abandon()
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0

    writer.finish()

    assert recorded(path) == [1]


def test_a_disk_that_does_not_answer_does_not_hold_up_the_end(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_PATIENCE_S", 0.05)
    with writer._lock:
        writer.finish()

    writer._file.close()


def test_a_file_that_is_there_is_not_written_over(path: Path, source: Source) -> None:
    path.write_text("another's")

    with pytest.raises(FileExistsError):
        Writer(path, {}, source)
    assert path.read_text() == "another's"
