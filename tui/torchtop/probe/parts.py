"""What a training loop is made of: its DDP models and optimizers, and the facts of each."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import facts, precision

_SETTLES_AFTER = 5
"""Steps: DDP rebuilds its buckets after the first backward passes."""


_COUNTED_OVER = 10
"""Steps over which collective operations are counted."""

_attribute = object.__getattribute__


class Parts:
    """Knows the models and optimizers that it was shown; it keeps no model alive.

    Args:
        torch: the module.
        tell: called with the facts of one, by keyword.
    """

    def __init__(self, torch: Any, tell: Callable[..., None]) -> None:
        self._torch = torch
        self._tell = tell
        self._models: List[Any] = []
        self.optimizers: Set[int] = set()
        """The ids of those that are known."""
        self.may_hide_optimizer = False
        """Whether the code around a backward pass is compiled."""
        self._settles_at = 0
        self._counted: Optional[Tuple[int, Optional[int]]] = None
        self._has_counted = False
        self._told: Dict[Tuple[str, int], Dict[str, Any]] = {}

    def model_made(self, model: Any, step: int) -> None:
        """A DistributedDataParallel module was made, in this step."""
        self._settles_at = step + _SETTLES_AFTER
        self._models.append(weakref.ref(model))
        self._tell_news("ddp", facts.ddp(model), id(model))

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

    def look_again(self, root: Any, step: int) -> bool:
        """At the beginning of a backward pass, now and then: tell what has changed.

        Args:
            root: the tensor that it starts from, or None.
            step: the one under way.

        Returns:
            Whether all there is to know can be known by now.
        """
        models, settled = self.models(), step >= self._settles_at
        self.count_collectives(step)
        for model in models:
            told = {**self._told.get(("ddp", id(model)), {}), **facts.ddp_settings(model)}
            if settled:
                told.update(facts.reduced(model))
            self._tell_news("ddp", told, id(model))
        try:
            graph = precision.graph(root)
            self._tell_news("precision", precision.precision(self._torch, graph))
            compiled = precision.compiled(graph, models)
            self._tell_news("compile", compiled)
            self.may_hide_optimizer = compiled["step"]
        except Exception as error:
            # Steps are measured all the same.
            self._tell_news("precision", {"error": "{}: {}".format(type(error).__name__, error)})
        return settled and self._counted is not None

    def count_collectives(self, step: int, at_end: bool = False) -> None:
        """Tell, once, how many collective operations some steps have taken.

        Args:
            step: the one under way.
            at_end: whether there will be no more steps, so that fewer must do.
        """
        if self._has_counted:
            return
        if self._counted is None:
            if step > 0:
                self._counted = step, facts.collectives(self._torch)
            return
        since, before = self._counted
        if step - since < (1 if at_end else _COUNTED_OVER):
            return
        self._has_counted = True
        now = facts.collectives(self._torch)
        # Fewer than before: a group has been destroyed, and its count with it.
        known = before is not None and now is not None and now >= before
        count = now - before if known else None  # type: ignore[operator]
        self._tell("collectives", from_step=since, to_step=step, count=count)

    def _tell_news(self, subject: str, told: Dict[str, Any], key: int = 0) -> None:
        """Tell facts, unless they are those that were told last of the same."""
        if self._told.get((subject, key)) != told:
            self._told[subject, key] = told
            self._tell(subject, **told)

    def optimizer_found(self, optimizer: Any) -> None:
        """An optimizer that is not known is about to step."""
        self.optimizers.add(id(optimizer))
        self._tell("optimizer", **facts.optimizer(optimizer))
