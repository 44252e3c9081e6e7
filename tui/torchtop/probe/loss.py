"""The loss, of a script that says nothing of it: the scalar that backward begins with."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List

NAME = "loss (backward)"
SCALED = "loss (backward, scaled)"


class LossWatch:
    """Gives the loss of a step as a scalar, detached from its graph, where it can be told.

    It is taken at the first backward pass of a step, so that the losses of a GAN do not mix; with
    gradient accumulation that is the first micro-batch's, as the script has scaled it.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._scalers: List[Any] = []
        self.wanted = True
        """Whether a loss is to be taken: set at each ``beat``, twice a second."""
        self._logged = False

    def scaler_made(self, scaler: Any) -> None:
        """A GradScaler was made: what backward begins with may be its product."""
        self._scalers.append(weakref.ref(scaler))

    def script_logs(self, scalars: Dict[str, Any]) -> None:
        """The script tells its loss itself, which it knows better."""
        self._logged = self._logged or any("loss" in name.lower() for name in scalars)

    def of(self, root: Any) -> Dict[str, Any]:
        """The loss by name, or nothing.

        Args:
            root: what backward was called with.
        """
        self.wanted = False
        # A subclass (a DTensor, say) may communicate when it is read.
        if self._logged or type(root) is not self._tensor or root.numel() != 1:
            return {}
        loss = root.detach()
        scales = [scale for scale in map(_scale, self._scalers) if scale is not None]
        if not scales:
            return {NAME: loss}
        if len(scales) > 1 or scales[0].device != loss.device:
            return {SCALED: loss}
        with self._torch.no_grad():
            return {NAME: loss.float() / scales[0]}


def _scale(reference: Any) -> Any:
    """The factor of a GradScaler that scales; it has one from its first use on."""
    scaler = reference()
    if scaler is None or not getattr(scaler, "_enabled", False):
        return None
    return getattr(scaler, "_scale", None)
