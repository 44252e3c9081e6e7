"""torchtop: htop for PyTorch training.

``import torchtop`` is cheap and pulls in nothing. A training script may use `log`, `progress`,
`phase` and `annotate`; none of it is needed, and outside torchtop all of it does nothing, in less
than a microsecond. A script that must run where torchtop is not installed either imports it so::

    try:
        import torchtop
    except ImportError:
        torchtop = None
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

__all__ = ["__version__", "annotate", "log", "phase", "progress"]
__version__ = "0.1.0"


def log(**scalars: object) -> None:
    """Record scalars of the current step; a no-op when the script is not run by torchtop.

    Args:
        **scalars: numbers or one-element tensors by name (``loss=loss``). A tensor on a GPU is
            copied to the host asynchronously and read once it has arrived: nothing synchronises.
    """
    runtime = sys.modules.get("_torchtop_runtime")
    if runtime is not None:
        runtime.log(scalars)


def progress(total_steps: int) -> None:
    """Tell how long the run will be, for the time left; a no-op without torchtop.

    Args:
        total_steps: steps of the whole run, from its start: optimizer steps, not batches.
    """
    runtime = sys.modules.get("_torchtop_runtime")
    if runtime is not None:
        runtime.tell({"total_steps": total_steps})


def annotate(text: str) -> None:
    """Put a line of text into the events of the session; a no-op without torchtop.

    Args:
        text: such as "learning rate halved"; 200 characters are kept.
    """
    runtime = sys.modules.get("_torchtop_runtime")
    if runtime is not None:
        runtime.annotate(text)


def phase(name: str) -> AbstractContextManager[None]:
    """Measure a part of the step of the script's own; a no-op without torchtop.

    For use in a ``with`` statement. The time is measured on the device's clock, beside the phases
    that torchtop finds itself: it lies within them, and is shown below them. Own phases may be
    nested, and may go on over several steps.

    Args:
        name: what it is called; 32 different ones are kept.
    """
    runtime = sys.modules.get("_torchtop_runtime")
    return _NOTHING if runtime is None else _Phase(runtime, name)


class _Nothing:
    """What `phase` is outside torchtop."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _Phase:
    """A phase that is measured."""

    __slots__ = ("_entered", "_name", "_runtime")

    def __init__(self, runtime: Any, name: str) -> None:
        self._runtime, self._name, self._entered = runtime, name, False

    def __enter__(self) -> None:
        self._entered = bool(self._runtime.phase_begins(self._name))

    def __exit__(self, *_: object) -> None:
        if self._entered:
            self._runtime.phase_ends()


_NOTHING = _Nothing()
