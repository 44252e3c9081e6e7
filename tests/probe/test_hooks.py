"""The probe on a real torch: what it measures, and that it never gets in the way."""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probe.conftest import Armed
from probe.fake_gpu import FakeGpu, pretend
from torchtop.session.records import PHASE_COLUMNS, is_recorded

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

MS = 1_000_000


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def data(batches: int = 10, size: int = 4) -> TensorDataset:
    return TensorDataset(torch.randn(batches * size, 8), torch.randint(0, 3, (batches * size,)))


class Training:
    """A small model and everything that a step needs."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loss(self, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(self.model(x), y)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def epoch(self, loader: Any) -> None:
        for x, y in loader:
            self.step(x, y)

    def weights(self) -> Any:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def trained(batches: int = 10) -> Any:
    """The weights of a run without a probe: what every run with one must come to."""
    training = Training()
    training.epoch(DataLoader(data(batches), batch_size=4))
    return training.weights()


@pytest.fixture(scope="module")
def expected() -> Any:
    """The weights that training comes to; made before the probe of a test is armed."""
    return run_seeded()


def run_seeded() -> Any:
    torch.manual_seed(3)
    return trained()


# -- what is measured ------------------------------------------------------------------------------


def test_a_loop_with_a_loader(armed: Armed) -> None:
    training = Training()
    loader = DataLoader(data(10), batch_size=4)
    for _ in range(2):
        training.epoch(loader)

    rows = armed.rows()

    assert [row["step"] for row in rows] == list(range(1, 20))
    for row in rows:
        assert sum(row[name] for name in PHASE_COLUMNS) == row["host_us"]
        assert (row["samples"], row["tokens"], row["lag_backward_us"]) == (4, None, 0)
        assert row["data_host_us"] == row["data_us"]
    assert sum(total["steps"] for total in armed.records("totals")) == 19
    assert armed.reasons == []


def test_sleeps_show_up_in_the_phases_that_they_are_in(armed: Armed) -> None:
    training = Training()

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.004)
            return torch.randn(8), 1

    class SlowBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            time.sleep(0.006)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            time.sleep(0.008)
            return grad

    for x, y in DataLoader(Slow(), batch_size=1):
        training.optimizer.zero_grad()
        loss = SlowBackward.apply(training.loss(x, y))
        loss.backward()
        time.sleep(0.010)
        training.optimizer.step()
        time.sleep(0.012)

    rows = armed.rows()
    assert len(rows) == 5
    for name, least in (
        ("data", 4),
        ("forward", 6),
        ("backward", 8),
        ("pre_optimizer", 10),
        ("other", 12),
    ):
        for row in rows:
            assert row[name + "_us"] >= least * 1000, name


def test_the_loader_of_evaluation_is_told_apart(armed: Armed) -> None:
    training = Training()
    train = DataLoader(data(5), batch_size=4, shuffle=True)
    evaluation = DataLoader(data(6, 2), batch_size=2)
    for _ in range(3):
        training.epoch(train)
        with torch.no_grad():
            for x, y in evaluation:
                training.loss(x, y)

    facts = armed.facts("loader")
    assert [(f["loader"], f["train"], f["batch_size"]) for f in facts] == [
        (0, True, 4),
        (1, False, 2),
    ]  # once, and not once a batch or an epoch
    assert facts[0]["batches"] == 5
    assert facts[0]["first_batch"] == {
        "bytes": 4 * 8 * 4 + 4 * 8,
        "device_bytes": 0,
        "pinned": False,
        "samples": 4,
        "tokens": None,
    }
    assert {row["samples"] for row in armed.rows()} == {4}
    assert len(armed.rows()) == 14


def test_two_loaders_side_by_side_are_told_once_each(armed: Armed) -> None:
    training = Training()
    for (x, y), (u, v) in zip(
        DataLoader(data(20), batch_size=4), DataLoader(data(20), batch_size=4), strict=True
    ):
        training.step(torch.cat([x, u]), torch.cat([y, v]))

    assert [f["loader"] for f in armed.facts("loader")] == [0, 1]
    assert {row["samples"] for row in armed.rows()} == {8}


def test_workers_are_told_and_write_nothing(armed: Armed) -> None:
    training = Training()
    loader = DataLoader(data(12), batch_size=4, num_workers=2)
    training.epoch(loader)

    (facts,) = armed.facts("loader")
    assert (facts["workers"], facts["prefetch_factor"]) == (2, 2)
    assert len(set(facts["worker_pids"])) == 2
    assert os.getpid() not in facts["worker_pids"]
    assert len(list(armed.directory.glob("*.jsonl"))) == 1
    records = armed.records()
    assert [record["seq"] for record in records] == list(range(len(records)))
    assert {record["ready"] for record in records if record["kind"] == "beat"} != {None}


def test_an_iterator_is_not_kept_alive(armed: Armed) -> None:
    training = Training()
    iterator = iter(DataLoader(data(3), batch_size=4))
    training.step(*next(iterator))
    reference = weakref.ref(iterator)

    del iterator

    assert reference() is None
    assert armed.reasons == []


def test_numpy_sizes_and_samplers_without_a_length_are_borne(armed: Armed) -> None:
    import numpy

    class Batches:
        batch_size = numpy.int64(4)

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[0, 1, 2, 3], [4, 5, 6, 7]])

        def __len__(self) -> int:
            raise NotImplementedError

    Training().epoch(DataLoader(data(3), batch_sampler=Batches()))

    (facts,) = armed.facts("loader")
    assert (facts["batch_size"], facts["batches"]) == (4, None)
    assert armed.reasons == []


def test_an_accumulation_is_one_step(armed: Armed) -> None:
    training = Training()
    for n, (x, y) in enumerate(DataLoader(data(12), batch_size=4), 1):
        training.loss(x, y).backward()
        if n % 3 == 0:
            training.optimizer.step()

    assert [(row["step"], row["samples"]) for row in armed.rows()] == [(n, 12) for n in (1, 2, 3)]


def test_a_loop_without_a_loader(armed: Armed) -> None:
    training = Training()
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 2, 0])
    for _ in range(5):
        training.step(x, y)

    rows = armed.rows()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert {row["samples"] for row in rows} == {None}
    assert {row["data_us"] for row in rows} == {0}


def test_batches_that_another_thread_fetches_do_not_break_the_counting(armed: Armed) -> None:
    training = Training()
    ready: queue.Queue[Any] = queue.Queue(2)

    def prefetch() -> None:
        for batch in DataLoader(data(20), batch_size=4):
            ready.put(batch)
        ready.put(None)

    thread = threading.Thread(target=prefetch)
    thread.start()
    while (batch := ready.get()) is not None:
        training.step(*batch)
    thread.join()

    rows = armed.rows()
    assert [row["step"] for row in rows] == list(range(1, 20))
    assert [row["samples"] for row in rows] == [4] * 19
    # A wait for the queue and a forward cannot be told apart
    assert {(row["data_us"], row["forward_us"] < 1000) for row in rows} == {(0, True)}
    assert all(row["unknown_us"] > 0 for row in rows)
    (loader,) = armed.facts("loader")
    assert (loader["dataset"], loader["elsewhere"]) == ("TensorDataset", True)
    assert armed.reasons == []


def test_training_on_another_thread_is_followed(armed: Armed) -> None:
    training = Training()
    thread = threading.Thread(target=training.epoch, args=[DataLoader(data(6), batch_size=4)])
    thread.start()
    thread.join()

    assert [row["step"] for row in armed.rows()] == [1, 2, 3, 4, 5]


def test_an_optimizer_that_calls_backward_itself(armed: Armed) -> None:
    training = Training()
    optimizer = torch.optim.LBFGS(training.model.parameters(), max_iter=3)
    for x, y in DataLoader(data(6), batch_size=4):

        def closure(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = training.loss(x, y)
            loss.backward()
            return loss

        optimizer.step(closure)

    assert [row["step"] for row in armed.rows()] == [1, 2, 3, 4, 5]
    assert [fact["optimizer"] for fact in armed.facts("optimizer")] == ["LBFGS"]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler")
def test_a_step_that_a_scaler_skips_is_a_step(armed: Armed) -> None:
    training = Training()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for n, (x, y) in enumerate(DataLoader(data(8), batch_size=4)):
        training.optimizer.zero_grad()
        loss = training.loss(x, y)
        if n in (2, 5):
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()

    rows = armed.rows()
    assert [(row["step"], row["samples"]) for row in rows] == [(n, 4) for n in range(1, 8)]


def test_a_graph_that_is_kept_and_gone_through_again_keeps_no_hooks(armed: Armed) -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x * x).sum()
    for _ in range(50):
        loss.backward(retain_graph=True)

    codes: list[str] = []
    meter = armed.probe.meter
    mark = meter.mark
    meter.mark = lambda code, extra=None: (codes.append(code), mark(code, extra))
    loss.backward()

    assert codes == ["B0", "BC", "B1"]


@pytest.mark.parametrize(
    "tensors",
    [
        lambda a, b: [a, b],
        lambda a, b: (a, b),
        lambda a, b: (t for t in (a, b)),
    ],
)
def test_backward_from_several_roots(armed: Armed, tensors: Any) -> None:
    x = torch.ones(2, requires_grad=True)

    torch.autograd.backward(tensors((x * 2).sum(), (x * 3).sum()))

    assert x.grad.tolist() == [5, 5]
    assert armed.reasons == []


def test_backward_from_a_leaf(armed: Armed) -> None:
    x = torch.ones((), requires_grad=True)

    x.backward()

    assert x.grad.item() == 1
    assert armed.reasons == []


def test_backward_that_raises_leaves_the_probe_in(armed: Armed) -> None:
    training = Training()
    loader = DataLoader(data(6), batch_size=4)
    for n, (x, y) in enumerate(loader):
        if n == 2:
            with pytest.raises(RuntimeError, match="does not require grad"):
                torch.ones(1).backward()
        training.step(x, y)

    assert [row["step"] for row in armed.rows()] == [1, 2, 3, 4, 5]
    assert armed.reasons == []


def test_scalars_come_with_their_step(armed: Armed) -> None:
    training = Training()
    runtime = sys.modules["_torchtop_runtime"]
    for n, (x, y) in enumerate(DataLoader(data(3), batch_size=4)):
        loss = training.step(x, y)
        runtime.log({f"loss{n}": loss, "n": torch.tensor(n)})

    told = armed.records("scalars")
    assert [(record["step"], *record["values"]) for record in told] == [
        (0, "loss (backward)", "loss0", "n"),  # from then on the script tells its own
        (1, "loss1"),
        (2, "loss2"),
    ]


def test_the_header_tells_the_device(armed: Armed) -> None:
    Training().epoch(DataLoader(data(2), batch_size=4))

    (header,) = armed.records("header")
    assert (header["rank"], header["world_size"], header["attempt"]) == (0, 1, 0)
    assert (header["torch"], header["cuda"], header["backend"]) == (torch.__version__, None, None)
    assert header["device"]["type"] == "cpu"


# -- never in the way ------------------------------------------------------------------------------


def boom(*args: Any, **kwargs: Any) -> Any:
    raise ArithmeticError("broken for the test")


@pytest.mark.parametrize(
    "place",
    [
        "facts.loader",
        "facts.ready",
        "facts.optimizer",
        "facts.versions",
        "facts.device",
        "batch.count",
        "batch.describe",
        "clock.HostClock.stamp",
        "clock.HostClock.refresh_stream",
        "assemble.StepAssembler.add",
        "assemble.StepAssembler._emit",
        "meter.StepMeter.mark",
        "meter.StepMeter.batch_came",
        "meter.StepMeter._next_step",
        "writer.row_of",
        "requests.RequestFile.poll",
        "parts.Parts.look_again",
        "parts.Parts.optimizer_found",
        "compute_end.ComputeEnd.root",
        "scalars.Scalars.take",
        "loaders.Loaders.asked",
        "loaders.Loaders.came",
        "runtime.Writer",
        "compute_end.ComputeEnd.expect",
        "parts.Parts.synchronised",
        "writer.Writer.put",
    ],
)
def test_a_fault_in_the_probe_costs_the_probe_and_nothing_else(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, place: str, expected: Any
) -> None:
    monkeypatch.setattr(f"torchtop.probe.{place}", boom)

    weights = run_seeded()
    sys.modules["_torchtop_runtime"].log({"loss": 1.0})
    armed.probe.finish()

    assert torch.equal(weights, expected)
    assert armed.reasons == ["ArithmeticError: broken for the test"]
    written = [record["disabled"] for record in armed.records("probe")]
    assert not written or written[-1] == armed.reasons[0]


@pytest.mark.parametrize(
    "place",
    [
        "clock.CudaClock.stamp",
        "clock.CudaClock.touch",
        "clock.CudaClock.resolve",
        "clock.CudaClock.refresh_stream",
        "clock.CudaClock._place",
        "clock.ClockInterval.add",
        "meter.StepMeter.settle",
        "meter.StepMeter.touch",
    ],
)
def test_a_fault_of_a_clock_of_events_costs_the_probe_and_nothing_else(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, place: str, expected: Any
) -> None:
    pretend(monkeypatch, FakeGpu(now=lambda: time.monotonic() * 1e3))
    monkeypatch.setattr(f"torchtop.probe.{place}", boom)

    assert torch.equal(run_seeded(), expected)
    assert armed.reasons == ["ArithmeticError: broken for the test"]


def test_on_a_gpu_few_events_are_recorded_and_few_questions_asked(
    armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a job on a GPU of which one step in eight is recorded
    gpu = FakeGpu(now=lambda: time.monotonic() * 1e3)
    pretend(monkeypatch, gpu)
    training = Training()
    training.epoch(DataLoader(data(2), batch_size=4))
    armed.probe.record_one_in(8)
    armed.probe._writer._stride = 8
    training.epoch(DataLoader(data(3), batch_size=4))
    gpu.recorded.clear()
    gpu.queries = 0
    training.epoch(DataLoader(data(200), batch_size=4))

    # Then the others cost nothing there: of a recorded step both ends and what lies in between
    steps = sum(is_recorded(step, 8) for step in range(6, 206))
    assert steps * 7 <= len(gpu.recorded) <= (steps + 2) * 9
    assert gpu.queries <= (steps + 2) * 3
    rows = [row for row in armed.rows() if row["step"] > 5]
    assert [row["step"] for row in rows] == [s for s in range(6, 205) if is_recorded(s, 8)]
    for row in rows:
        assert sum(row[name] for name in PHASE_COLUMNS) == pytest.approx(row["host_us"], rel=0.2)
        assert 0 <= row["lag_backward_us"] < 10_000


def test_a_fault_after_a_while_keeps_what_was_recorded(
    armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training()
    loader = DataLoader(data(5), batch_size=4)
    training.epoch(loader)
    monkeypatch.setattr("torchtop.probe.batch.count", boom)
    training.epoch(loader)

    assert [row["step"] for row in armed.rows()] == [1, 2, 3, 4]
    assert armed.records("probe")[-1]["disabled"] == armed.reasons[0]
    assert armed.records("beat")[-1]["marker"] is None


def test_a_callback_that_autograd_refuses_costs_the_probe_and_nothing_else(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, expected: Any
) -> None:
    monkeypatch.setattr(armed.probe._compute_end, "_queue", boom)

    assert torch.equal(run_seeded(), expected)
    assert armed.reasons == ["ArithmeticError: broken for the test"]


def test_a_directory_that_is_not_there_costs_the_probe_and_nothing_else(
    armed: Armed, expected: Any
) -> None:
    armed.directory.rmdir()

    assert torch.equal(run_seeded(), expected)
    assert "No such file or directory" in armed.reasons[0]


def test_a_directory_that_vanishes_while_training_goes_on_costs_nothing(
    armed: Armed, expected: Any
) -> None:
    Training().epoch(DataLoader(data(3), batch_size=4))
    for file in armed.directory.iterdir():
        file.unlink()
    armed.directory.rmdir()

    assert torch.equal(run_seeded(), expected)
    assert armed.reasons == []


def test_a_keyboard_interrupt_within_the_probe_is_the_scripts(
    armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchtop.probe.batch.count", interrupted)

    with pytest.raises(KeyboardInterrupt):
        next(iter(DataLoader(data(3), batch_size=4)))


def test_a_fault_of_the_dataset_reaches_the_script_unchanged(armed: Armed) -> None:
    class Broken(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            raise KeyError("no such image")

    Training().epoch(DataLoader(data(2), batch_size=4))
    with pytest.raises(KeyError, match="no such image"):
        next(iter(DataLoader(Broken())))

    assert armed.reasons == []


def test_what_holds_training_up_is_told_as_a_pause(armed: Armed, tmp_path: Path) -> None:
    # Given a step with a checkpoint, a full garbage collection and an evaluation in it
    training = Training()
    garbage = [[index] for index in range(300_000)]
    training.epoch(DataLoader(data(3), batch_size=4))
    torch.save({"weights": torch.zeros(1000)}, tmp_path / "checkpoint.pt")
    gc.collect()
    with torch.no_grad():
        for _ in DataLoader(data(5), batch_size=4):
            time.sleep(0.002)
    training.epoch(DataLoader(data(3), batch_size=4))
    del garbage

    # Then each is told once, with how long it took
    pauses = {record["what"]: record for record in armed.records("pause")}
    assert set(pauses) == {"save", "gc", "eval"}
    assert sum(record["what"] == "eval" for record in armed.records("pause")) == 1
    assert pauses["eval"]["duration_us"] >= 10_000
    assert all(record["duration_us"] > 0 for record in pauses.values())
    assert {record["step"] for record in pauses.values()} <= {2, 3}


def test_a_busy_job_is_measured_in_part_and_counted_whole(armed: Armed) -> None:
    # Given a job of which one step in eight is to be recorded
    training = Training()
    training.epoch(DataLoader(data(2), batch_size=4))
    armed.probe.record_one_in(8)
    armed.probe._writer._stride = 8
    training.epoch(DataLoader(data(200), batch_size=4))

    # Then just those are, and the totals say how many steps stand behind the phases
    recorded = [row["step"] for row in armed.rows() if row["step"] > 3]
    assert recorded == [step for step in range(4, 202) if is_recorded(step, 8)]
    totals = armed.records("totals")
    assert sum(record["steps"] for record in totals) == 201
    assert sum(record["samples"] for record in totals) == 201 * 4
    assert len(recorded) <= sum(record["phase_steps"] for record in totals) < 100
    for row in armed.rows():
        assert sum(row[name] for name in PHASE_COLUMNS) == pytest.approx(row["host_us"], abs=8)
        assert row["exposed_comm_us"] >= 0
        assert row["lag_backward_us"] == 0


def test_a_step_that_is_not_measured_takes_few_calls(armed: Armed) -> None:
    # Given a job of which next to no step is recorded
    training = Training()
    training.epoch(DataLoader(data(2), batch_size=4))
    armed.probe.record_one_in(2**20)
    training.epoch(DataLoader(data(5), batch_size=4))
    calls: list[str] = []

    def watch(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and "/torchtop/probe/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(watch)
    training.epoch(DataLoader(data(20), batch_size=4))
    sys.setprofile(None)

    # Then each of its steps takes about as few calls as there are hooks: each costs microseconds
    assert len([name for name in calls if name != "collecting"]) <= 35 * 20


def test_a_fork_is_no_rank(armed: Armed) -> None:
    training = Training()
    loader = DataLoader(data(3), batch_size=4)
    training.epoch(loader)
    child = os.fork()
    if child == 0:
        training.epoch(loader)
        armed.probe.finish()
        os._exit(0 if armed.probe.disabled else 1)
    assert os.waitpid(child, 0)[1] == 0

    training.epoch(loader)

    assert [row["step"] for row in armed.rows()] == [1, 2, 3, 4, 5]
    assert len(list(armed.directory.glob("*.jsonl"))) == 1


def test_it_ends_quietly_twice(armed: Armed) -> None:
    Training().epoch(DataLoader(data(3), batch_size=4))
    armed.probe.finish()
    armed.probe.finish()

    assert armed.reasons == []


def test_patched_methods_keep_their_names(armed: Armed) -> None:
    import inspect

    assert torch.autograd.backward.__name__ == "backward"
    assert "tensors" in inspect.signature(torch.autograd.backward).parameters
    ddp = torch.nn.parallel.DistributedDataParallel
    assert "device_ids" in inspect.signature(ddp.__init__).parameters


def test_a_watchdog_that_ends_the_process_waits_for_nothing(armed: Armed) -> None:
    # Given a rank that trains, of which nothing is to be touched on another thread
    torch.ones(1, requires_grad=True).sum().backward()
    touched: list[str] = []
    armed.probe.meter.finish = lambda: touched.append("meter")

    watchdog = threading.Thread(target=armed.probe.leaves)
    watchdog.start()
    watchdog.join()

    assert touched == []
    armed.probe.leaves()
    assert touched == ["meter"]
