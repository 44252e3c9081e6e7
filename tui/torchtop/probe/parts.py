"""What a training loop is made of: its DDP models and optimizers, and the facts of each."""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Set

from . import facts

_BUCKETS_AT_STEP = 5
"""DDP rebuilds its buckets after the first backward passes."""


_attribute = object.__getattribute__


class Parts:
    """Knows the models and optimizers that it was shown; it keeps no model alive.

    Args:
        tell: called with the facts of one, by keyword.
    """

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._models: List[Any] = []
        self.optimizers: Set[int] = set()
        """The ids of those that are known."""
        self._buckets_told = False

    def model_made(self, model: Any) -> None:
        """A DistributedDataParallel module was made."""
        self._models.append(weakref.ref(model))
        self._tell("ddp", **facts.ddp(model))

    def models(self) -> List[Any]:
        """Those that are alive."""
        return [model for model in (ref() for ref in self._models) if model is not None]

    def synchronised(self) -> Optional[bool]:
        """Whether the backward that ends has synchronised gradients: DDP outside ``no_sync``.

        Returns:
            None where there is no DDP.
        """
        synchronised = None
        for reference in self._models:
            model = reference()
            if model is not None:
                # As of any object: a module looks in three more places.
                synchronised = _attribute(model, "require_forward_param_sync")
                if synchronised:
                    return True
        return synchronised

    def look_again(self, step: int) -> None:
        """Now and then: tell what has changed.

        Args:
            step: the one under way.
        """
        if not self._buckets_told and step >= _BUCKETS_AT_STEP:
            self._buckets_told = True
            for model in self.models():
                self._tell("ddp", **{**facts.ddp(model), "buckets": facts.bucket_sizes(model)})

    def optimizer_found(self, optimizer: Any) -> None:
        """An optimizer that is not known is about to step."""
        self.optimizers.add(id(optimizer))
        self._tell("optimizer", **facts.optimizer(optimizer))
