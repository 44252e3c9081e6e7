"""What a script tells by the functions of `torchtop`, and what is seen of it without them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

import torchtop
from probe.conftest import Armed
from probe.test_hooks import Training, data

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402


def loss_of(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record["values"].items() if "loss" in name}


# -- phases ----------------------------------------------------------------------------------------


def test_a_phase_of_the_script_is_measured_within_the_others(armed: Armed) -> None:
    training = Training()
    for x, y in DataLoader(data(6), batch_size=4):
        with torchtop.phase("augment"):
            noisy = x + torch.randn_like(x)
        with torchtop.phase("train"), torchtop.phase("model"):
            training.step(noisy, y)

    rows = armed.rows()
    (record,) = armed.records("steps")
    own = record["own"]
    assert sorted(own) == ["augment", "model", "train"]
    for place, row in enumerate(rows):
        assert 0 < own["augment"][place] <= row["forward_us"]
        assert own["model"][place] <= own["train"][place] <= row["host_us"]
        assert own["model"][place] >= row["backward_us"]
    assert armed.records("totals")[0]["own_us"]["augment"] == sum(own["augment"])


def test_a_phase_that_raises_is_over(armed: Armed) -> None:
    training = Training()
    for n, (x, y) in enumerate(DataLoader(data(4), batch_size=4)):
        training.step(x, y)
        with pytest.raises(KeyError), torchtop.phase("check"):
            raise KeyError(n)

    (record,) = armed.records("steps")
    assert max(record["own"]["check"]) < 1000


def test_names_without_end_are_not_kept(armed: Armed) -> None:
    training = Training()
    for n, (x, y) in enumerate(DataLoader(data(50), batch_size=4)):
        with torchtop.phase(f"step {n}" + "x" * 100):
            training.step(x, y)

    names = {name for record in armed.records("steps") for name in record.get("own", ())}
    assert len(names) <= 32
    assert max(map(len, names)) == 40


def test_a_phase_of_another_thread_is_none(armed: Armed) -> None:
    import threading

    training = Training()

    def elsewhere() -> None:
        with torchtop.phase("elsewhere"):
            pass

    for x, y in DataLoader(data(4), batch_size=4):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        training.step(x, y)

    assert not any("own" in record for record in armed.records("steps"))


# -- annotations and progress ----------------------------------------------------------------------


def test_annotations_come_with_their_step(armed: Armed) -> None:
    training = Training()
    for n, (x, y) in enumerate(DataLoader(data(4), batch_size=4)):
        training.step(x, y)
        if n == 2:
            torchtop.annotate("learning rate halved" + "!" * 300)

    (told,) = armed.records("annotation")
    assert (told["step"], told["text"][:21], len(told["text"])) == (2, "learning rate halved!", 200)


def test_annotations_without_end_are_not_kept(armed: Armed) -> None:
    training = Training()
    training.epoch(DataLoader(data(2), batch_size=4))
    for n in range(3000):
        torchtop.annotate(str(n))

    assert len(armed.records("annotation")) == 1000


def test_the_length_of_the_run_is_told(armed: Armed) -> None:
    torchtop.progress(total_steps=300)
    Training().epoch(DataLoader(data(2), batch_size=4))

    assert [fact["total_steps"] for fact in armed.facts("script")] == [300]


@pytest.mark.parametrize("persistent", [False, True])
def test_how_far_training_is_in_its_loader_is_known(armed: Armed, persistent: bool) -> None:
    training = Training()
    loader = DataLoader(data(5), batch_size=4, num_workers=1, persistent_workers=persistent)
    assert "loader_at" not in armed.probe.beat()
    seen = []
    for _ in range(2):
        for x, y in loader:
            training.step(x, y)
            seen.append(armed.probe.beat()["loader_at"])
        with torch.no_grad():
            for x, y in DataLoader(data(2), batch_size=4):
                training.loss(x, y)
        seen.append(armed.probe.beat()["loader_at"])

    first = [[0, place, 5] for place in (1, 2, 3, 4, 5, 5)]
    assert seen == [*first, *([1, place, total] for _, place, total in first)]


# -- the loss --------------------------------------------------------------------------------------


def test_the_loss_is_seen_without_a_word_of_the_script(armed: Armed) -> None:
    training = Training()
    told = []
    for x, y in DataLoader(data(4), batch_size=4):
        armed.probe.beat()  # twice a second
        armed.probe._scalars = None if armed.probe._scalars is None else armed.probe._scalars
        told.append(training.step(x, y).item())

    (first, *_) = armed.records("scalars")
    assert first["step"] == 0
    assert loss_of(first) == {"loss (backward)": pytest.approx(told[0])}


def test_the_loss_of_the_first_micro_batch_stands_for_the_step(armed: Armed) -> None:
    training = Training()
    told = []
    for n, (x, y) in enumerate(DataLoader(data(8), batch_size=4)):
        if n % 4 == 2:
            armed.probe.beat()
            armed.probe._scalars._taken_ns.clear()
        loss = training.loss(x, y)
        loss.backward()
        told.append(loss.item())
        if n % 4 == 3:
            training.optimizer.step()

    scalars = armed.records("scalars")
    assert [record["step"] for record in scalars] == [0, 1]
    assert loss_of(scalars[1]) == {"loss (backward)": pytest.approx(told[4])}


def test_the_loss_is_not_kept_alive(armed: Armed) -> None:
    training = Training()
    x, y = next(iter(DataLoader(data(2), batch_size=4)))
    loss = training.step(x, y)
    gone = weakref.ref(loss)
    del loss
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("scale", [1.0, 512.0])
def test_the_factor_of_a_scaler_is_taken_out(armed: Armed, scale: float) -> None:
    training, scaler = Training(), torch.amp.GradScaler("cpu", init_scale=scale)
    told = []
    for x, y in DataLoader(data(3), batch_size=4):
        training.optimizer.zero_grad()
        loss = training.loss(x, y)
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        told.append(loss.item())

    assert loss_of(armed.records("scalars")[0]) == {"loss (backward)": pytest.approx(told[0])}


def test_of_several_scalers_it_is_not_known_whose_factor_is_in_it(armed: Armed) -> None:
    training = Training()
    first, second = (torch.amp.GradScaler("cpu", init_scale=s) for s in (2.0, 4.0))
    unused, off = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)
    x, y = next(iter(DataLoader(data(1), batch_size=4)))
    second.scale(torch.ones(1))
    loss = training.loss(x, y)
    first.scale(loss).backward()

    assert loss_of(armed.records("scalars")[0]) == {
        "loss (backward, scaled)": pytest.approx(2 * loss.item())
    }
    assert (unused.is_enabled(), off.is_enabled()) == (True, False)


def test_what_is_no_scalar_is_no_loss(armed: Armed) -> None:
    weights = torch.ones(3, requires_grad=True)
    (weights * 2).backward(torch.ones(3))
    torch.autograd.backward([weights.sum(), weights.prod()])

    assert armed.records("scalars") == []


def test_a_loss_that_is_no_number_is_noted_once_and_again_after_it_was_one(armed: Armed) -> None:
    training = Training()
    factors = (1, "nan", "nan", 1, "-inf")
    for factor, (x, y) in zip(factors, DataLoader(data(5), batch_size=4), strict=True):
        armed.probe.beat()
        if armed.probe._scalars is not None:
            armed.probe._scalars._taken_ns.clear()
        training.optimizer.zero_grad()
        loss = training.loss(x, y)
        (loss if factor == 1 else loss.detach().requires_grad_() + float(factor)).backward()
        training.optimizer.step()

    noted = armed.records("not_finite")
    assert [(note["step"], note["value"]) for note in noted] == [(1, "nan"), (4, "-inf")]


# -- without torchtop ------------------------------------------------------------------------------


def test_all_of_it_does_nothing_in_a_script_that_runs_alone() -> None:
    code = """if True:
        import sys
        before = set(sys.modules)
        import torchtop
        assert set(sys.modules) - before <= {"torchtop", "__future__"}
        torchtop.log(loss=1.0)
        torchtop.progress(total_steps=3)
        torchtop.annotate("text")
        with torchtop.phase("a"), torchtop.phase("b"):
            pass
        assert torchtop.phase("a") is torchtop.phase("b")
    """
    root = str(Path(torchtop.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
