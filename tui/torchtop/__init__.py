"""torchtop: htop for PyTorch training.

``import torchtop`` is cheap and pulls in nothing: training scripts import it for `log`.
"""

from __future__ import annotations

import sys

__all__ = ["__version__", "log"]
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
