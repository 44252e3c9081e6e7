"""One step looked at for waiting calls: what is found, and that everything is put back after it.

Without a GPU torch never warns of a call that waits; here what would wait warns as torch does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probe.conftest import Armed
from torchtop.probe import inspection as module
from torchtop.probe.inspection import Inspection, fields
from torchtop.probe.requests import RequestFile
from torchtop.session.records import INSPECT_FILE

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

WARNING = "called a synchronizing CUDA operation"
REQUEST = {"id": "7-1", "requested_by": "test"}


ITEM = """
def item():
    if torch._C._cuda_get_sync_debug_mode():
        warnings.warn(WARNING, stacklevel=2)
"""

SPACE = {"torch": torch, "warnings": warnings, "WARNING": WARNING}
exec(compile(ITEM, str(Path(torch.__file__).with_name("_tensor.py")), "exec"), SPACE)
item: Any = SPACE["item"]
"""A call that waits: torch warns of it, at the caller's line."""


def state() -> tuple[Any, ...]:
    """Everything that an inspection touches."""
    add = sys.modules[warnings.simplefilter.__module__]
    return (
        torch._C._cuda_get_sync_debug_mode(),
        list(warnings.filters),  # type: ignore[attr-defined]
        vars(warnings)["_showwarnmsg"],
        warnings.showwarning,
        vars(add).get("_add_filter"),
        torch.cuda.synchronize,
        vars(torch.cuda.Event)["synchronize"],
        vars(torch.cuda.Stream)["synchronize"],
        torch.distributed.barrier,
    )


@pytest.fixture
def told() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def inspection(told: list[dict[str, Any]]) -> Iterator[Inspection]:
    made = Inspection(torch, True, told.append)
    before = state()
    yield made
    made.stop()
    assert state() == before


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings that reach the user."""
    texts: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: texts.append(str(message)))
    return texts


def inspect(inspection: Inspection, step: Callable[[], None]) -> None:
    """Three steps, of which the second is looked at."""
    step()
    inspection.ask(REQUEST)
    for number in (5, 6):
        inspection.step_begins(number)
        step()
        assert inspection.wanted == (number == 5)
        if not inspection.wanted:
            break


def here(offset: int) -> int:
    return sys._getframe(1).f_lineno + offset


def test_the_calls_of_one_step_are_told_by_line(
    inspection: Inspection, told: list[dict[str, Any]], shown: list[str]
) -> None:
    def step() -> None:
        for _ in range(3):
            item()
        item()

    before = state()
    step_line = here(-3)
    inspect(inspection, step)

    assert state() == before
    (result,) = map(fields, told)
    assert (result["id"], result["requested_by"], result["step"]) == ("7-1", "test", 5)
    assert result["problem"] is None
    assert [
        (call["file"], call["line"], call["function"], call["count"], call["call"])
        for call in result["calls"]
    ] == [
        (__file__, step_line - 1, "step", 3, None),
        (__file__, step_line, "step", 1, None),
    ]
    assert [call["text"] for call in result["calls"]] == ["item()", "item()"]
    assert shown == []


def test_calls_that_torch_does_not_warn_of_are_told_too(
    inspection: Inspection, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def waits(*_: Any) -> None:
        waited.append("")
        item()  # a call that waits within another is not told

    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", waits)
    monkeypatch.setattr(torch.cuda.Stream, "synchronize", waits)
    monkeypatch.setattr(torch.distributed, "barrier", waits)

    def step() -> None:
        torch.cuda.synchronize()
        torch.cuda.Event.synchronize(None)
        torch.cuda.Stream.synchronize(None)
        torch.distributed.barrier()

    inspect(inspection, step)

    assert len(waited) == 4 * 3
    (result,) = map(fields, told)
    assert [(call["call"], call["text"]) for call in result["calls"]] == [
        ("torch.cuda.synchronize", "torch.cuda.synchronize()"),
        ("torch.cuda.Event.synchronize", "torch.cuda.Event.synchronize(None)"),
        ("torch.cuda.Stream.synchronize", "torch.cuda.Stream.synchronize(None)"),
        ("torch.distributed.barrier", "torch.distributed.barrier()"),
    ]
    assert {call["count"] for call in result["calls"]} == {1}


def test_a_fault_of_a_call_that_waits_is_the_scripts(
    inspection: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no GPU")

    monkeypatch.setattr(torch.cuda, "synchronize", fails)
    inspection.ask(REQUEST)
    inspection.step_begins(1)

    with pytest.raises(RuntimeError, match="no GPU"):
        torch.cuda.synchronize()


@pytest.mark.parametrize("action", ["error", "always", "ignore", "once"])
def test_filters_of_the_script_meanwhile_neither_hide_nor_show_nor_raise(
    inspection: Inspection, told: list[dict[str, Any]], shown: list[str], action: Any
) -> None:
    def step() -> None:
        warnings.simplefilter(action)
        item()
        with warnings.catch_warnings():
            warnings.filterwarnings(action)
            item()
        item()

    kept = list(warnings.filters)  # type: ignore[attr-defined]
    inspect(inspection, step)

    assert sum(count for _, count in told[0]["calls"]) == 3
    assert shown == []
    assert warnings.filters[0][0] == action  # type: ignore[attr-defined]
    warnings.filters[:] = kept  # type: ignore[attr-defined, index]


def test_warnings_are_dropped_also_where_the_script_takes_all_filters_away(
    inspection: Inspection, told: list[dict[str, Any]], shown: list[str]
) -> None:
    kept = list(warnings.filters)  # type: ignore[attr-defined]

    def step() -> None:
        warnings.resetwarnings()
        item()

    inspection.ask(REQUEST)
    inspection.step_begins(1)
    step()
    inspection.step_begins(2)

    assert sum(count for _, count in told[0]["calls"]) == 1
    assert (shown, warnings.filters) == ([], [])  # type: ignore[attr-defined]
    warnings.filters[:] = kept  # type: ignore[attr-defined, index]


def test_warnings_of_the_script_are_shown_as_ever(inspection: Inspection, shown: list[str]) -> None:
    def step() -> None:
        warnings.warn("mine", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        inspect(inspection, step)

    # Once for the line, although a step of three was looked at.
    assert shown == ["mine"]


def test_other_threads_are_not_told_and_hear_nothing(
    inspection: Inspection, told: list[dict[str, Any]], shown: list[str]
) -> None:
    def step() -> None:
        thread = threading.Thread(target=item)
        thread.start()
        thread.join()

    inspect(inspection, step)

    assert (told[0]["calls"], shown) == ([], [])


def test_a_script_that_watches_itself_is_left_alone(
    inspection: Inspection, told: list[dict[str, Any]]
) -> None:
    torch._C._cuda_set_sync_debug_mode(2)
    try:
        before = state()
        inspection.ask(REQUEST)
        inspection.step_begins(1)
        assert state() == before
    finally:
        torch._C._cuda_set_sync_debug_mode(0)

    assert "sync debug mode" in told[0]["problem"]
    assert not inspection.wanted


def test_a_mode_that_the_script_turns_on_meanwhile_stays(inspection: Inspection) -> None:
    inspection.ask(REQUEST)
    inspection.step_begins(1)
    torch._C._cuda_set_sync_debug_mode(2)
    inspection.step_begins(2)

    assert torch._C._cuda_get_sync_debug_mode() == 2
    torch._C._cuda_set_sync_debug_mode(0)


def test_what_cannot_be_looked_at_is_told_and_put_back(
    inspection: Inspection, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state()

    def broken(*_: Any) -> None:
        raise ArithmeticError("for the test")

    monkeypatch.setattr(inspection, "_wrap", broken)
    inspection.ask(REQUEST)
    inspection.step_begins(1)

    assert state() == before
    assert told[0]["problem"] == "it failed: ArithmeticError: for the test"


def test_requests_meanwhile_are_answered_together(
    inspection: Inspection, told: list[dict[str, Any]]
) -> None:
    inspection.ask(REQUEST)
    inspection.step_begins(1)
    inspection.ask({"id": "8-1"})
    item()
    inspection.step_begins(2)

    assert [result["id"] for result in told] == ["7-1", "8-1"]
    assert told[0]["calls"] == told[1]["calls"]


def test_a_fork_in_the_middle_of_it_has_everything_back(inspection: Inspection) -> None:
    before = state()
    inspection.ask(REQUEST)
    inspection.step_begins(1)
    child = os.fork()
    if child == 0:
        inspection.abandon()
        os._exit(0 if state() == before else 1)

    assert os.waitpid(child, 0)[1] == 0


def test_a_line_of_a_library_is_told_beside_the_scripts(
    inspection: Inspection, told: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "site-packages" / "trainer.py"
    file.parent.mkdir()
    file.write_text("def log(loss):\n    return [loss()]\n")
    space: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), space)

    inspect(inspection, lambda: space["log"](item))

    (call,) = fields(told[0])["calls"]
    assert (call["file"], call["text"]) == (__file__, 'space["log"](item)')
    assert (call["library"]["file"], call["library"]["line"]) == (str(file), 2)


# -- asked for by a file ---------------------------------------------------------------------------


def ask(directory: Path, request: dict[str, Any]) -> None:
    """As the supervisor does."""
    new = directory / "new"
    new.write_text(json.dumps(request))
    new.replace(directory / INSPECT_FILE)


def test_a_request_counts_once_and_an_old_one_not_at_all(tmp_path: Path) -> None:
    ask(tmp_path, {"id": "old"})
    requests = RequestFile(tmp_path)
    assert requests.poll() is None

    ask(tmp_path, REQUEST)
    assert requests.poll() == REQUEST
    assert requests.poll() is None
    ask(tmp_path, REQUEST)  # another node's supervisor
    assert requests.poll() is None
    ask(tmp_path, {"id": "7-2"})
    assert requests.poll() == {"id": "7-2"}


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"id": null}'])
def test_a_request_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    requests = RequestFile(tmp_path)
    (tmp_path / INSPECT_FILE).write_text(text)

    assert requests.poll() is None


def train(steps: int, each: Callable[[], None] = lambda: None) -> None:
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(4 * steps, 8), torch.zeros(4 * steps, dtype=torch.int64))
    for x, y in DataLoader(data, batch_size=4):
        nn.functional.cross_entropy(model(x), y).backward()
        each()
        optimizer.step()


def test_without_cuda_there_is_nothing_to_inspect(armed: Armed) -> None:
    train(3)
    ask(armed.directory, REQUEST)
    armed.probe.attend()
    train(3)

    result = armed.records("inspected")[-1]
    assert (result["problem"], result["calls"]) == ("nothing to inspect: no CUDA", [])


@pytest.fixture
def as_on_a_gpu(armed: Armed) -> Armed:
    """A probe that takes its rank for one of a GPU, once it has begun."""
    train(2)
    armed.probe._inspection._cuda = True
    return armed


def test_a_step_of_a_training_is_inspected_and_others_are_not(
    as_on_a_gpu: Armed, shown: list[str]
) -> None:
    modes: list[int] = []

    def each() -> None:
        modes.append(torch._C._cuda_get_sync_debug_mode())
        item()

    before = state()
    ask(as_on_a_gpu.directory, REQUEST)
    as_on_a_gpu.probe.attend()
    train(8, each)

    assert sum(modes) == 1
    assert state() == before
    result = as_on_a_gpu.records("inspected")[-1]  # at the end it is told once more
    assert [(call["text"], call["count"]) for call in result["calls"]] == [("item()", 1)]
    assert (shown, as_on_a_gpu.reasons) == ([], [])


def test_a_run_that_ends_meanwhile_says_so(as_on_a_gpu: Armed) -> None:
    before = state()
    ask(as_on_a_gpu.directory, REQUEST)
    as_on_a_gpu.probe.attend()

    result = as_on_a_gpu.records("inspected")[-1]  # at the end it is told once more
    assert result["problem"] == module.OVER
    assert state() == before


def test_a_probe_that_fails_meanwhile_puts_everything_back(as_on_a_gpu: Armed) -> None:
    before = state()
    ask(as_on_a_gpu.directory, REQUEST)
    as_on_a_gpu.probe.attend()

    def each() -> None:
        if torch._C._cuda_get_sync_debug_mode():
            as_on_a_gpu.probe.disable("for the test")

    train(8, each)

    assert state() == before


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_calls_that_wait_for_a_gpu_are_found(armed: Armed, shown: list[str]) -> None:
    device = torch.device("cuda", 0)
    model = nn.Linear(8, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(4 * 12, 8), torch.zeros(4 * 12, dtype=torch.int64))
    event = torch.cuda.Event()
    before = None
    for n, (x, y) in enumerate(DataLoader(data, batch_size=4)):
        if n == 4:
            before = state()
            ask(armed.directory, REQUEST)
            armed.probe.attend()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        loss.item()
        loss.detach().cpu()
        torch.nonzero(loss)
        event.record()
        event.synchronize()
        torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
        optimizer.step()

    assert state() == before
    result = armed.records("inspected")[-1]
    found = {call["text"]: (call["count"], call["call"]) for call in result["calls"]}
    for text, call in (
        ("loss.item()", None),
        ("loss.detach().cpu()", None),
        ("torch.nonzero(loss)", None),
        ("event.synchronize()", "torch.cuda.Event.synchronize"),
        ("torch.cuda.current_stream().synchronize()", "torch.cuda.Stream.synchronize"),
        ("torch.cuda.synchronize()", "torch.cuda.synchronize"),
    ):
        assert found[text] == (1, call)
    assert (shown, armed.reasons) == ([], [])
