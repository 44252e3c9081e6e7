"""The session browser: a list of all sessions over the board, to open, compare, or measure by."""

from __future__ import annotations
