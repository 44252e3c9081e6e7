"""What keeps the training safe from the probe: it fails open, and it knows its own cost."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any, Callable, Dict, Optional, TypeVar, Union

_now = time.monotonic_ns

Hook = TypeVar("Hook", bound=Callable[..., Any])


def fail_open(hook: Hook) -> Hook:
    """A hook that does nothing once the probe is out, and takes it out instead of raising."""

    @functools.wraps(hook)
    def guarded(self: "Guarded", *args: Any) -> Any:
        if self.disabled is not None:
            return None
        start = _now()
        try:
            return hook(self, *args)
        except Exception as error:
            self.disable(error)
            return None
        finally:
            self._cost_ns += _now() - start

    return guarded  # type: ignore[return-value]


class Guarded:
    """Something whose hooks are `fail_open`.

    Args:
        report: called with the reason if it takes itself out.
    """

    def __init__(self, report: Optional[Callable[[str], None]]) -> None:
        self.disabled: Optional[str] = None
        """Why the probe is out; None while it is not."""
        self._report = report
        self._cost_ns = 0
        self._cost_from = (0, 0, 0)

    def disable(self, why: Union[str, BaseException]) -> None:
        """Take the probe out; training goes on. The first reason stays."""
        if self.disabled is not None:
            return
        text = why if isinstance(why, str) else "{}: {}".format(type(why).__name__, why)
        self.disabled = text[:500]
        if self._report is not None:
            with contextlib.suppress(Exception):
                self._report(self.disabled)

    def spent_ns(self) -> int:
        """Host time spent in the hooks so far, on the training thread."""
        return self._cost_ns

    def _cost(self, step: int) -> Dict[str, Any]:
        """Host time spent since the last call; `step` is the one under way."""
        cost, at = self.spent_ns(), _now()
        last_cost, last_at, last_step = self._cost_from
        self._cost_from = (cost, at, step)
        return {
            "cost_us": max(0, cost - last_cost) // 1000,
            "steps": step - last_step,
            "cost_share": max(0, cost - last_cost) / (at - last_at) if last_at else None,
            "disabled": self.disabled,
        }
