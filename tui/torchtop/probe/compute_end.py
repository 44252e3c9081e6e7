"""The moment in a backward pass at which its compute is done, and communication may still go on."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from .old_torch import prehook_of


class ComputeEnd:
    """Calls back at the end of a backward pass's compute.

    A callback queued at the very start of backward runs before DDP's own, which is the one that
    makes the compute stream wait for communication.

    Args:
        torch: the module.
        ended: called with the code that was asked for; on autograd's thread.
        failed: called with what went wrong.
    """

    def __init__(
        self,
        torch: Any,
        ended: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._tensor = torch.Tensor
        self._queue = torch.autograd.Variable._execution_engine.queue_callback
        self._failed = failed
        # Made once: a step that is measured costs enough.
        self._at_start = {
            code: partial(self._begins, partial(ended, code)) for code in ("BC", "nBC")
        }

    def root(self, tensors: Any) -> Any:
        """The first of the tensors that a backward starts from, where they can be looked at."""
        if isinstance(tensors, self._tensor):
            return tensors
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else None
        return first if isinstance(first, self._tensor) else None

    def expect(self, root: Any, code: str) -> Any:
        """Have `code` called back by the pass that starts from `root`.

        Returns:
            A list of the hook's handle, if there is one, to be removed: a graph that is kept is
            gone through again.
        """
        node = getattr(root, "grad_fn", None)
        return () if node is None else (prehook_of(root, node)(self._at_start[code]),)

    def _begins(self, ended: Callable[[], None], _gradients: Any) -> None:
        try:
            self._queue(ended)
        except Exception as error:
            self._failed(error)
