"""What a training loop is made of: its DDP models and optimizers, and the facts of each."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional

from . import facts

_BUCKETS_AT_STEP = 5
"""DDP rebuilds its buckets after the first backward passes."""


class Parts:
    """Knows the models and optimizers that it was shown; it keeps no model alive.

    Args:
        tell: called with the facts of one, by keyword.
    """

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._models: List[Any] = []
        self._optimizers: Dict[int, bool] = {}
        self._buckets_told = False

    def model_made(self, model: Any) -> None:
        """A DistributedDataParallel module was made."""
        self._models.append(weakref.ref(model))
        self._tell("ddp", **facts.ddp(model))

    def models(self) -> List[Any]:
        """Those that are alive."""
        return [model for model in (ref() for ref in self._models) if model is not None]

    def synchronised(self, step: int) -> Optional[bool]:
        """Whether the backward that ends has synchronised gradients: DDP outside ``no_sync``.

        Args:
            step: the one under way.

        Returns:
            None where there is no DDP.
        """
        if not self._buckets_told and step >= _BUCKETS_AT_STEP:
            self._buckets_told = True
            for model in self.models():
                self._tell("ddp", **{**facts.ddp(model), "buckets": facts.bucket_sizes(model)})
        synchronised = None
        for reference in self._models:
            model = reference()
            if model is not None:
                # By its dictionary: a module looks three places up for an attribute.
                synchronised = model.__dict__.get("require_forward_param_sync", True)
                if synchronised:
                    break
        return synchronised

    def optimizer_steps(self, optimizer: Any) -> None:
        """An optimizer is about to step."""
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = True
            self._tell("optimizer", **facts.optimizer(optimizer))
