"""Steps that are counted off: they are told as if each of their markers had been looked at."""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probe.conftest import Armed
from probe.fake_gpu import FakeGpu, pretend
from torchtop.probe import hooks
from torchtop.probe.coast import Coast

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

SIZE = 4
STRIDE = 8


def loader(batches: float = 40, **options: Any) -> Any:
    count = round(batches * SIZE)
    data = TensorDataset(torch.randn(count, 8), torch.randint(0, 3, (count,)))
    return DataLoader(data, SIZE, **options)


class Loop:
    """A model, and what training it takes."""

    def __init__(self) -> None:
        self.model: nn.Module = nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def backward(self, x: Any, y: Any) -> None:
        nn.functional.cross_entropy(self.model(x), y).backward()

    def step(self, x: Any, y: Any) -> None:
        self.backward(x, y)
        self.optimizer.step()


def plain(loop: Loop) -> None:
    for x, y in loader(120):
        loop.step(x, y)


def short_epochs_with_a_ragged_end(loop: Loop) -> None:
    for _ in range(12):
        for x, y in loader(6.5):
            loop.step(x, y)


def epochs_that_are_left(loop: Loop) -> None:
    for _ in range(8):
        for n, (x, y) in enumerate(loader()):
            loop.step(x, y)
            if n == 11:
                break


def workers(loop: Loop) -> None:
    for x, y in loader(60, num_workers=1):
        loop.step(x, y)


def accumulation(loop: Loop) -> None:
    for n, (x, y) in enumerate(loader(240)):
        loop.backward(x, y)
        if n % 3 == 2:
            loop.optimizer.step()


def accumulation_that_varies(loop: Loop) -> None:
    for n, (x, y) in enumerate(loader(200)):
        loop.backward(x, y)
        if n * n % 7 in (1, 2) or n % 50 > 20:
            loop.optimizer.step()


def no_loader(loop: Loop) -> None:
    x, y = torch.randn(SIZE, 8), torch.tensor([0, 1, 2, 0])
    for _ in range(200):
        loop.step(x, y)


def a_loader_that_is_left(loop: Loop) -> None:
    for batch in loader(30):
        loop.step(*batch)
    for _ in range(150):
        loop.step(*batch)
    for x, y in loader(30):
        loop.step(x, y)


def evaluation_within(loop: Loop) -> None:
    for n, (x, y) in enumerate(loader(100)):
        loop.step(x, y)
        if n % 15 == 14:
            with torch.no_grad():
                for u, _ in loader(3):
                    loop.model(u)


def evaluation_with_gradients(loop: Loop) -> None:
    for n, (x, y) in enumerate(loader(100)):
        loop.step(x, y)
        if n % 15 == 14:
            for u, _ in loader(3):
                loop.model(u)


def batches_without_gradients(loop: Loop) -> None:
    batches = iter(loader(200))
    for n in range(100):
        if n % 20 == 19:
            with torch.no_grad():
                next(batches)
        loop.step(*next(batches))


def two_optimizers(loop: Loop) -> None:
    other = Loop()
    for x, y in loader(90):
        loop.step(x, y)
        other.step(x, y)


def adversaries(loop: Loop) -> None:
    critic = Loop()
    for x, y in loader(150):
        critic.backward(x, y)
        critic.backward(x.neg(), y)
        critic.optimizer.step()
        loop.step(x, y)


def adversaries_of_which_one_is_trained_now_and_then(loop: Loop) -> None:
    critic = Loop()
    for n, (x, y) in enumerate(loader(200.5)):
        critic.step(x, y)
        if n < 40 or n % 30 not in (3, 17):
            loop.step(x, y)


def adversaries_that_accumulate(loop: Loop) -> None:
    critic = Loop()
    for n, (x, y) in enumerate(loader(300)):
        critic.backward(x, y)
        loop.backward(x, y)
        if n % 2:
            critic.optimizer.step()
            loop.optimizer.step()


def two_optimizers_of_one_backward(loop: Loop) -> None:
    other = torch.optim.Adam(loop.model.parameters(), lr=0.01)
    for x, y in loader(120):
        loop.step(x, y)
        other.step()


def two_optimizers_without_a_loader(loop: Loop) -> None:
    other = Loop()
    x, y = torch.randn(SIZE, 8), torch.tensor([0, 1, 2, 0])
    for _ in range(150):
        loop.step(x, y)
        other.step(x, y)


def adversaries_that_a_scaler_skips(loop: Loop) -> None:
    critic, scaler = Loop(), torch.amp.GradScaler("cpu", init_scale=4.0)
    for n, (x, _) in enumerate(loader(150)):
        for at, one in enumerate((critic, loop)):
            loss = one.model(x).sum() * (float("inf") if n % 19 == 17 + at else 1.0)
            scaler.scale(loss).backward()
            scaler.step(one.optimizer)
        scaler.update()


def two_loaders(loop: Loop) -> None:
    for (x, y), (u, v) in zip(loader(80), loader(80), strict=True):
        loop.step(torch.cat([x, u]), torch.cat([y, v]))


def tokens(loop: Loop) -> None:
    def collate(rows: Any) -> Any:
        length = 3 + int(rows[0][1])
        made = {"labels": torch.stack([row[1] for row in rows]), "x": rows[0][0]}
        return {"input_ids": torch.ones(len(rows), length, dtype=torch.int64), **made}

    for batch in loader(90.5, collate_fn=collate):
        x = batch["x"].expand(len(batch["labels"]), 8)
        loop.step(x, batch["labels"])


def batches_that_change(loop: Loop) -> None:
    def collate(rows: Any) -> Any:
        few = rows[: 1 + int(rows[0][1])]  # as where broken images are left out
        batch = [torch.stack([row[at] for row in few]) for at in (0, 1)]
        return batch if len(few) > 1 else tuple(batch)

    for x, y in loader(120, collate_fn=collate):
        loop.step(x, y)


def steps_that_a_scaler_skips(loop: Loop) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for n, (x, _) in enumerate(loader(100)):
        loss = loop.model(x).sum() * (float("inf") if n % 19 == 18 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(loop.optimizer)
        scaler.update()


def backward_that_fails(loop: Loop) -> None:
    for n, (x, y) in enumerate(loader(100)):
        if n % 9 == 8:
            with pytest.raises(RuntimeError):
                torch.ones(1).backward()
        loop.step(x, y)


def a_step_within_a_step(loop: Loop) -> None:
    other = Loop()
    for n, (x, y) in enumerate(loader(100)):
        loop.backward(x, y)
        if n % 10 == 9:
            other.step(x, y)
        loop.optimizer.step()


@contextlib.contextmanager
def alone(loop: Loop) -> Iterator[Any]:
    """The model in DDP, in a group of one rank."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    loop.model = nn.parallel.DistributedDataParallel(loop.model)
    yield loop.model
    distributed.destroy_process_group()


def ddp(loop: Loop) -> None:
    with alone(loop):
        for x, y in loader(100):
            loop.step(x, y)


def ddp_adversaries(loop: Loop) -> None:
    critic = Loop()
    with alone(loop):
        critic.model = nn.parallel.DistributedDataParallel(critic.model)
        for n, (x, y) in enumerate(loader(150)):
            critic.step(x, y)
            if n % 40 != 39:
                loop.step(x, y)


def ddp_that_accumulates(loop: Loop) -> None:
    with alone(loop) as model:
        for n, (x, y) in enumerate(loader(200)):
            with contextlib.nullcontext() if n % 4 == 3 else model.no_sync():
                loop.backward(x, y)
            if n % 4 == 3:
                loop.optimizer.step()


LOOPS = [
    ddp,
    ddp_adversaries,
    ddp_that_accumulates,
    plain,
    short_epochs_with_a_ragged_end,
    epochs_that_are_left,
    workers,
    accumulation,
    accumulation_that_varies,
    no_loader,
    a_loader_that_is_left,
    evaluation_within,
    evaluation_with_gradients,
    batches_without_gradients,
    two_optimizers,
    two_optimizers_of_one_backward,
    two_optimizers_without_a_loader,
    adversaries,
    adversaries_of_which_one_is_trained_now_and_then,
    adversaries_that_accumulate,
    adversaries_that_a_scaler_skips,
    two_loaders,
    tokens,
    batches_that_change,
    steps_that_a_scaler_skips,
    backward_that_fails,
    a_step_within_a_step,
]


@pytest.fixture
def watched(armed: Armed, tmp_path: Path) -> Iterator[Armed]:
    """A second probe in the same process, which looks at every marker."""
    directory = tmp_path / "watched"
    directory.mkdir()
    second = Armed(None, directory)
    second.probe = hooks.install(torch, directory, second.reasons.append)
    second.probe.meter.count_off = lambda *_: None
    yield second
    second.probe.finish()
    second.probe.disable("the test is over")
    atexit.unregister(second.probe.finish)


def one_in(stride: int, *probes: Armed) -> None:
    for armed in probes:
        armed.probe.record_one_in(stride)
        armed.probe._writer._stride = stride
        armed.probe._writer._choose_stride = lambda rows: None


def told(armed: Armed) -> dict[str, Any]:
    """What a probe has told of its steps, without their times."""
    totals = armed.records("totals")
    reached = [totals[0]["from_step"], *(total["to_step"] for total in totals)]
    assert [total["from_step"] for total in totals[1:]] == reached[1:-1]
    sums = {name: [t[name] for t in totals if t[name] is not None] for name in totals[0]}
    names = ("steps", "phase_steps", "samples", "tokens")
    return {
        "reached": (reached[0], reached[-1]),
        "rows": [(row["step"], row["samples"], row["tokens"]) for row in armed.rows()],
        "loaders": [(f["loader"], f["train"]) for f in armed.facts("loader")],
        **{name: sum(sums[name]) for name in names},
    }


@pytest.mark.filterwarnings("ignore:.*lr_scheduler")
@pytest.mark.parametrize("train", LOOPS, ids=lambda loop: str(loop.__name__))
def test_what_is_counted_off_is_told_as_if_it_had_been_looked_at(
    armed: Armed, watched: Armed, train: Callable[[Loop], None]
) -> None:
    # Given two probes in one job, one of which may count steps off
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loop = Loop()
    for x, y in loader(3):
        loop.step(x, y)
    one_in(STRIDE, armed, watched)

    train(loop)

    # Then both have seen the same steps, batches and samples
    assert armed.probe.meter.step == watched.probe.meter.step
    assert told(armed) == told(watched)
    assert armed.reasons == watched.reasons == []
    # And it has counted off, unless there was nothing that could be relied on
    assert (armed.probe.meter.coast.spent_ns[0] > 0) is (train is not two_loaders)


@pytest.mark.usefixtures("armed")
def test_a_step_that_is_not_measured_takes_no_call_but_the_hooks(armed: Armed) -> None:
    # Given a steady loop of which next to no step is recorded
    loop = Loop()
    for x, y in loader(3):
        loop.step(x, y)
    one_in(2**20, armed)
    batches = iter(loader(60))
    for _ in range(20):
        loop.step(*next(batches))
    calls: list[str] = []

    def watch(frame: Any, event: str, _argument: Any) -> None:
        if event == "call" and "/torchtop/probe/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(watch)
    for _ in range(30):
        loop.step(*next(batches))
    sys.setprofile(None)

    # Then each is the hooks themselves, and one call where a step turns into the next
    seen = [name for name in calls if name != "collecting"]
    assert {name: seen.count(name) / 30 for name in set(seen)} == {
        "__next__": 1,
        "turn": 1,
        "backward": 1,
        "before": 1,
        "after": 1,
    }


def test_where_a_rank_is_can_be_told_all_the_while(armed: Armed) -> None:
    # Given a loop whose steps are counted off
    loop, seen = Loop(), []
    for x, y in loader(3):
        loop.step(x, y)
    one_in(2**20, armed)

    def look() -> None:
        beat = armed.probe.beat()
        seen.append((beat["marker"], beat["step"], beat["loader_at"][1]))

    for n, (x, y) in enumerate(loader(30)):
        if n == 25:
            look()
            loss = nn.functional.cross_entropy(loop.model(x), y)
            loss.register_hook(lambda _: look())
            loss.backward()
            look()
            loop.optimizer.register_step_pre_hook(lambda *_: look())
            loop.optimizer.step()
            look()
            break
        loop.step(x, y)

    # Then the beats tell the marker, the step and the batch that it is at
    assert armed.probe.meter.coast.times
    assert seen == [(code, 28, 26) for code in ("D1", "B0", "B1", "O0", "O1")]


def test_phases_of_the_scripts_own_go_on_over_steps_that_are_counted_off(
    armed: Armed, watched: Armed
) -> None:
    # Given own phases that are entered in one step and left in another
    loop = Loop()
    for x, y in loader(3):
        loop.step(x, y)
    one_in(STRIDE, armed, watched)
    for n, (x, y) in enumerate(loader(150)):
        for probe in (armed.probe, watched.probe):
            if n % 23 == 5:
                probe.phase_begins("long")
            elif n % 23 == 16:
                probe.phase_ends()
        loop.step(x, y)

    # Then the measured steps that lie in them are the same as where every marker is looked at
    def within(probe: Armed) -> list[tuple[int, bool]]:
        records = [record for record in probe.records("steps") if "own" in record]
        pairs = [zip(r["step"], r["own"]["long"], strict=True) for r in records]
        return [(step, spent > 0) for told in pairs for step, spent in told]

    assert within(armed) == within(watched)
    assert {long for _, long in within(armed)} == {True, False}
    assert armed.probe.meter.coast.spent_ns[0] > 0


def test_a_step_that_the_gpu_finishes_late_is_told_while_others_are_counted_off(
    armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a GPU that has not come to a measured step yet when others are counted off
    gpu = FakeGpu()
    pretend(monkeypatch, gpu)
    loop, meter = Loop(), armed.probe.meter
    batches = iter(loader(100))
    for _ in range(3):
        loop.step(*next(batches))
    one_in(STRIDE, armed)
    while not (meter.coast.times and meter.in_flight):
        loop.step(*next(batches))

    # When it has
    gpu.passes(len(gpu.recorded))
    loop.step(*next(batches))

    # Then that is seen with the next marker
    assert meter.coast.times
    assert not meter.in_flight
    assert armed.reasons == []


def test_a_step_is_inspected_although_steps_are_counted_off(armed: Armed) -> None:
    loop, begun = Loop(), []
    for x, y in loader(3):
        loop.step(x, y)
    one_in(2**20, armed)
    for n, (x, y) in enumerate(loader(40)):
        if n == 20:
            armed.probe.meter.on_turn = begun.append
            armed.probe.meter.coast.stop_soon()
        loop.step(x, y)

    assert begun[:3] == [25, 26, 27]


@pytest.mark.parametrize("place", ["turn", "count", "begin", "end"])
def test_a_fault_while_counting_costs_the_probe_and_nothing_else(
    armed: Armed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def boom(*_: Any) -> Any:
        raise ArithmeticError("broken for the test")

    monkeypatch.setattr(Coast, place, boom)
    loop = Loop()
    for x, y in loader(3):
        loop.step(x, y)
    one_in(STRIDE, armed)

    tokens(loop)

    assert armed.reasons == ["ArithmeticError: broken for the test"]
