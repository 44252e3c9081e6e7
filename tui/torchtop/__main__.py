"""``python -m torchtop`` and the ``torchtop`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit status."""
    from torchtop.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
