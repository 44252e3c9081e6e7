"""The Textual viewer: draws sessions, and asks a `Controller` for everything else.

Names are imported on use, so that a command line without a screen does not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchtop.app.controller import Controller, ControllerError, WorkloadEntry
    from torchtop.app.main import TorchtopApp, run_viewer

__all__ = ["Controller", "ControllerError", "TorchtopApp", "WorkloadEntry", "run_viewer"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("TorchtopApp", "run_viewer"):
        return getattr(import_module("torchtop.app.main"), name)
    if name in __all__:
        return getattr(import_module("torchtop.app.controller"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
