"""In which precision a step computes, read from real graphs. (Compiling: `test_survival`.)"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from probe.conftest import Armed
from torchtop.probe import precision

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def network() -> Any:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def loss(model: Any, dtype: Any = None) -> Any:
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    return nn.functional.cross_entropy(model(x), torch.tensor([1, 2]))


def told(root: Any) -> dict[str, Any]:
    return precision.precision(torch, precision.graph(root))


def test_a_plain_step_is_of_float32_and_not_of_autocast() -> None:
    facts = told(loss(network()))

    assert facts["matmul_dtypes"] == facts["parameter_dtypes"] == ["float32"]
    assert facts["autocast"] is False


def test_autocast_is_seen_although_it_is_off_by_then() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        made = loss(network())

    facts = told(made)

    assert (facts["matmul_dtypes"], facts["autocast"]) == (["bfloat16"], "bfloat16")
    assert facts["parameter_dtypes"] == ["float32"]


def test_a_model_of_bfloat16_is_not_taken_for_autocast() -> None:
    facts = told(loss(network().bfloat16(), torch.bfloat16))

    assert (facts["matmul_dtypes"], facts["parameter_dtypes"]) == (["bfloat16"], ["bfloat16"])
    assert facts["autocast"] is False


@pytest.mark.parametrize("root", [None, torch.ones(1), torch.ones(1, requires_grad=True)])
def test_a_root_that_leads_nowhere_tells_nothing(root: Any) -> None:
    facts = told(root)

    assert facts["matmul_dtypes"] is facts["parameter_dtypes"] is facts["autocast"] is None


def test_a_function_of_the_scripts_own_may_keep_what_it_likes() -> None:
    class Odd(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.variable, ctx.dtype = "mine", 7
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    facts = told(Odd.apply(loss(network())))

    assert facts["matmul_dtypes"] == ["float32"]


def test_a_graph_without_end_is_looked_at_in_part() -> None:
    x = torch.ones(1, requires_grad=True)
    for _ in range(5000):
        x = x + 1

    assert precision.graph(x) == precision.Graph(None, [], False)


SWITCHES = """
import sys, torch
sys.path.insert(0, {path!r})
from torchtop.probe import precision
{script}
import warnings
warnings.simplefilter("error")
facts = precision.precision(torch, precision.graph(None))
print(facts["matmul_tf32"], facts["float32_matmul_precision"], facts["cudnn_benchmark"])
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", "False highest False"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "True high False"),
        ("torch.set_float32_matmul_precision('high')", "True high False"),
        ("torch.backends.cudnn.benchmark = True", "False highest True"),
        # What the older names would say is refused once a newer one was used.
        ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "True None False"),
    ],
)
def test_switches_are_read_by_either_name(script: str, expected: str) -> None:
    if "fp32_precision" in script and not hasattr(torch._C, "_get_fp32_precision_getter"):
        pytest.skip("this torch has no such switch")
    path = next(p for p in sys.path if p.endswith("tui"))
    code = SWITCHES.format(path=path, script=script)

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_a_step_that_is_not_compiled_is_told(armed: Armed) -> None:
    loss(network()).backward()

    (facts,) = armed.facts("compile")
    assert (facts["model"], facts["step"]) == (False, False)
    (told,) = armed.facts("precision")
    assert told["matmul_dtypes"] == ["float32"]


def test_facts_that_change_are_told_again_and_others_are_not(armed: Armed) -> None:
    # Given a job that turns autocast on after a while
    model = network()
    for step in range(20):
        with torch.autocast("cpu", torch.bfloat16, enabled=step >= 10):
            made = loss(model)
        armed.probe.cost()  # as the writer's thread asks now and then
        made.backward()

    # Then both states are told once
    assert [told["autocast"] for told in armed.facts("precision")] == [False, "bfloat16"]
    assert armed.reasons == []


def test_what_a_script_tells_is_kept_as_it_was_then(armed: Armed) -> None:
    # Given a script that goes on with the dictionary that it told
    loss(network()).backward()
    part: dict[str, object] = {"from_step": 0}
    armed.probe.tell({"part": part})
    part["to_step"] = 9
    # When it tells it again
    armed.probe.tell({"part": part})

    # Then both states are there
    assert [told["part"] for told in armed.facts("script")] == [
        {"from_step": 0},
        {"from_step": 0, "to_step": 9},
    ]


def test_facts_that_cannot_be_read_leave_the_steps_measured(
    armed: Armed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ArithmeticError("for the test")

    monkeypatch.setattr(precision, "graph", broken)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(16, 3, 8, 8), torch.zeros(16, dtype=torch.int64))
    for x, y in DataLoader(data, batch_size=4):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    assert len(armed.rows()) == 3
    assert [told["error"] for told in armed.facts("precision")] == ["ArithmeticError: for the test"]
    assert armed.reasons == []
