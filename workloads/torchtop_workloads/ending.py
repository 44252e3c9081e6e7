"""How a script ends when something is wrong that the user can put right."""

from __future__ import annotations

import sys
from typing import NoReturn


def fail(message: str, status: int = 1) -> NoReturn:
    """End this process with one line on stderr."""
    print(message, file=sys.stderr, flush=True)
    raise SystemExit(status)
