"""What an error of the driver means for the metric, or for the GPU, that met it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")

FIRST_RETRY_S = 5.0
LAST_RETRY_S = 300.0
"""A failed metric is asked again after 5, 10, 20 ... 300 s: some errors pass (permissions of a
container, a driver that is busy), and asking a failing driver every second would load it."""


class Code(IntEnum):
    """Return codes of NVML (nvmlReturn_t in nvml.h), part of its stable ABI."""

    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    GPU_NOT_FOUND = 28


_NEVER = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.NOT_SUPPORTED,
        Code.FUNCTION_NOT_FOUND,
        Code.ARGUMENT_VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)
_LOST = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND})

_NO_GPUS = {
    Code.NO_PERMISSION: "no permission to use the NVIDIA driver: check the access rights of "
    "/dev/nvidiactl and /dev/nvidia0",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: run nvidia-smi to see why",
    Code.LIBRARY_NOT_FOUND: "no NVIDIA driver on this machine (libnvidia-ml.so.1 not found)",
    Code.FUNCTION_NOT_FOUND: "the NVIDIA driver is too old for this version of nvidia-ml-py: "
    "update the driver",
    Code.GPU_IS_LOST: "the NVIDIA driver has lost a GPU: see the kernel log for its Xid error, "
    "then reset the GPU or reboot",
    Code.LIB_RM_VERSION_MISMATCH: "the NVIDIA kernel module and driver library have different "
    "versions, usually after an update: reboot, or reload the kernel module",
}


class GpuLost(Exception):  # noqa: N818 - a state of the GPU more than an error of ours
    """The GPU has fallen off the bus, or must be reset: no call about it may be made again."""


def code_of(error: Exception) -> int | None:
    """The NVML return code of an exception of the binding; None for any other exception."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def is_final(error: Exception) -> bool:
    """Whether the same call will fail for as long as this driver is loaded.

    An AttributeError is a function or a constant that this version of the binding lacks.
    """
    return isinstance(error, AttributeError) or code_of(error) in _NEVER


def is_lost(error: Exception) -> bool:
    """Whether the GPU is gone."""
    return code_of(error) in _LOST


def why_no_gpus(error: Exception) -> str:
    """One sentence for an error that stops NVML as a whole."""
    code = code_of(error)
    if code in _NO_GPUS:
        return _NO_GPUS[Code(code)]
    return f"the NVIDIA driver does not answer ({describe(error)}): run nvidia-smi to see why"


def describe(error: Exception) -> str:
    """The binding's words for an error, on one line."""
    return " ".join(str(error).split()) or type(error).__name__


class Reading(Generic[T]):
    """One value of one GPU, and the calls that can read it.

    Args:
        *ways: the preferred call first. A call that the driver or the GPU does not have is
            dropped for good, and the next one takes its place.
    """

    def __init__(self, *ways: Callable[[], T]) -> None:
        self._ways = list(ways)
        self._delay_s = FIRST_RETRY_S
        self._retry_at_s = float("-inf")

    def read(self, now_s: float) -> T | None:
        """The value, or None where it cannot be had at present.

        Args:
            now_s: monotonic time, seconds.

        Raises:
            GpuLost: the GPU is gone.
        """
        if now_s < self._retry_at_s:
            return None
        while self._ways:
            try:
                value = self._ways[0]()
            except Exception as error:  # a binding raises more than its own errors
                if is_lost(error):
                    raise GpuLost(describe(error)) from error
                if is_final(error):
                    self._ways.pop(0)
                    continue
                self._retry_at_s = now_s + self._delay_s
                self._delay_s = min(LAST_RETRY_S, self._delay_s * 2)
                return None
            self._delay_s = FIRST_RETRY_S
            return value
        return None
