"""How fast a script trains, told on standard error: what it computes stays on standard output."""

import os
import sys
import time

import torch


class Timing:
    """Times the steps after the warm-up.

    Args:
        warm_up: steps that are left out.
    """

    def __init__(self, warm_up=10):
        self._left = warm_up
        self._since = None
        self._samples = 0

    def step(self, samples):
        """A step is done, of so many samples over all ranks."""
        self._left -= 1
        if self._left < 0:
            self._samples += samples
        elif self._left == 0:
            self._since = self._now()

    def tell(self):
        """Print samples a second: of the first rank."""
        if self._since is not None and self._samples and os.environ.get("RANK", "0") == "0":
            rate = self._samples / (self._now() - self._since)
            print(f"throughput {rate:.4f} samples/s", file=sys.stderr)

    def _now(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()
