"""What PyTorch 1 (1.12 and 1.13) lacks of the seams that the probe enters torch through."""

from __future__ import annotations

import functools
from typing import Any, Callable

Step = Callable[..., Any]


def current_graph_task(torch: Any) -> Callable[[], int]:
    """The number of the backward pass that this thread is in, -1 outside of any.

    Releases that do not tell it take every pass for an outer one.
    """
    told: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
    return told


def prehook_of(root: Any, node: Any) -> Callable[[Any], Any]:
    """What registers a hook that runs before the first node of a backward pass.

    Args:
        root: the tensor that the pass starts from.
        node: its ``grad_fn``.
    """
    register: Callable[[Any], Any] = getattr(node, "register_prehook", None) or root.register_hook
    return register


def hook_steps(optimizer: Any, before: Step, after: Step) -> None:
    """Have functions called around the steps of all optimizers.

    Args:
        optimizer: the module ``torch.optim.optimizer``.
        before: takes the optimizer, its arguments and its keyword arguments.
        after: the same.
    """
    register = getattr(optimizer, "register_optimizer_step_pre_hook", None)
    if register is not None:
        register(before)
        optimizer.register_optimizer_step_post_hook(after)
        return
    base = optimizer.Optimizer
    original = base._hook_for_profile  # in it each optimizer wraps the step of its class

    @functools.wraps(original)
    def hook_for_profile(self: Any) -> None:
        original(self)
        kind = type(self)
        if not getattr(kind.step, "_torchtop", False):
            kind.step = _around(kind.step, before, after)

    base._hook_for_profile = hook_for_profile


def _around(step: Step, before: Step, after: Step) -> Step:
    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self, args, kwargs)
        result = step(self, *args, **kwargs)
        after(self, args, kwargs)
        return result

    stepped._torchtop = True  # type: ignore[attr-defined]
    return stepped
