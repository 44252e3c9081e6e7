"""A process that keeps a device busy for as long as the one that started it lives.

Started as a file, so that it needs no import path: ``python fault_contender.py cuda:1``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from types import TracebackType

_PR_SET_PDEATHSIG = 1


class Contender:
    """The process, seen from the one that starts it; it is stopped until `resume`.

    Args:
        device: what it computes on, such as ``cuda:1``; None starts no process.
    """

    def __init__(self, device: str | None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if device is not None:
            command = [sys.executable, __file__, device, str(os.getpid())]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    @property
    def pid(self) -> int | None:
        """Its process."""
        return None if self._process is None else self._process.pid

    def set_busy(self, busy: bool) -> None:
        """Let it compute, or not; returns when it has begun.

        Raises:
            RuntimeError: it has ended, and has said why on stderr.
        """
        if self._process is None:
            return
        if busy and self._process.stdout is not None and not self._process.stdout.closed:
            ready = self._process.stdout.readline()
            self._process.stdout.close()
            if not ready:
                raise RuntimeError("the contending process has ended")
        self._process.send_signal(signal.SIGCONT if busy else signal.SIGSTOP)


def main() -> None:
    """Compute until killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[2]):
        return  # it has ended already
    import torch

    device = torch.device(sys.argv[1])
    on_gpu = device.type == "cuda"
    size = 8192 if on_gpu else 256
    matrix = torch.randn(size, size, device=device)
    if on_gpu:
        matrix = matrix.bfloat16()
    product = torch.empty_like(matrix)
    os.write(1, b"ready\n")
    while True:
        for _ in range(8):  # a few at a time: what is queued goes on when the process is stopped
            torch.mm(matrix, matrix, out=product)
        if on_gpu:
            torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
