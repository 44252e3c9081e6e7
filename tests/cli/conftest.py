from __future__ import annotations

from cli.tmux import terminals
from launch.conftest import run, state_home

__all__ = ["run", "state_home", "terminals"]
