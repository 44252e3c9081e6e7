from __future__ import annotations

from launch.conftest import run, state_home

__all__ = ["run", "state_home"]
