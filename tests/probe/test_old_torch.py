"""The seams of PyTorch 1: told apart by what a release lacks, and standing in for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from torchtop.probe import old_torch

torch = pytest.importorskip("torch")


class Optimizer:
    """As in 1.12 and 1.13: each class's step is wrapped when the first of them is made."""

    def __init__(self) -> None:
        self._hook_for_profile()

    def _hook_for_profile(self) -> None:
        kind = type(self)
        if not getattr(kind.step, "hooked", None):
            step = kind.step

            def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
                return step(self, *args, **kwargs)

            hooked.hooked = True  # type: ignore[attr-defined]
            kind.step = hooked  # type: ignore[method-assign]

    def step(self, closure: Any = None) -> Any:
        raise NotImplementedError


def test_steps_of_all_optimizers_are_seen_once() -> None:
    # given two kinds of optimizers and one that inherits its step
    class Sgd(Optimizer):
        def step(self, closure: Any = None) -> Any:
            return closure

    class Adam(Optimizer):
        def step(self, closure: Any = None) -> Any:
            return 2

    class MySgd(Sgd):
        pass

    module = SimpleNamespace(Optimizer=Optimizer)
    seen: list[tuple[str, str, tuple[Any, ...]]] = []
    # when
    old_torch.hook_steps(
        module,
        lambda o, args, kwargs: seen.append(("before", type(o).__name__, args)),
        lambda o, args, kwargs: seen.append(("after", type(o).__name__, args)),
    )
    results = [Sgd().step(7), Adam().step(), MySgd().step(8), Sgd().step(9)]
    # then
    assert results == [7, 2, 8, 9]
    assert seen == [
        (when, name, args)
        for name, args in (("Sgd", (7,)), ("Adam", ()), ("MySgd", (8,)), ("Sgd", (9,)))
        for when in ("before", "after")
    ]


def test_a_release_that_has_the_hooks_is_asked_for_them() -> None:
    given = []
    module = SimpleNamespace(
        register_optimizer_step_pre_hook=given.append,
        register_optimizer_step_post_hook=given.append,
    )
    before, after = object(), object()
    old_torch.hook_steps(module, before, after)  # type: ignore[arg-type]

    assert given == [before, after]


def test_a_pass_is_an_outer_one_where_nobody_tells() -> None:
    assert old_torch.current_graph_task(SimpleNamespace(_C=SimpleNamespace()))() == -1
    assert old_torch.current_graph_task(torch)() == -1


@pytest.mark.parametrize("old", [False, True])
def test_the_hook_runs_before_the_first_node_of_the_pass(old: bool) -> None:
    # given a loss, of whose node an old release cannot be asked
    weights = torch.ones(3, requires_grad=True)
    order: list[str] = []
    weights.register_hook(lambda _: order.append("weights"))
    loss = (2 * weights).sum()
    node = SimpleNamespace() if old else loss.grad_fn
    # when
    handle = old_torch.prehook_of(loss, node)(lambda _: order.append("start"))
    loss.backward()
    handle.remove()
    # then
    assert order == ["start", "weights"]
    assert weights.grad.tolist() == [2.0, 2.0, 2.0]
