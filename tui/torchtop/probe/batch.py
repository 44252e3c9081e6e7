"""What a batch tells: samples, tokens, bytes, pinned or not."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional, Tuple

_DEPTH = 4
_TOKEN_KEYS = ("input_ids", "tokens", "token_ids")


def tensors(batch: Any, torch: Any, depth: int = _DEPTH) -> Iterator[Tuple[str, Any]]:
    """The tensors of a nested batch, each with the key that it stands under ('' in a sequence)."""
    if isinstance(batch, torch.Tensor):
        yield "", batch
    elif depth and isinstance(batch, dict):
        for key, value in batch.items():
            for name, tensor in tensors(value, torch, depth - 1):
                yield name or str(key), tensor
    elif depth and isinstance(batch, (list, tuple)):
        for value in batch[:16]:
            yield from tensors(value, torch, depth - 1)
    elif depth and isinstance(getattr(batch, "data", None), dict):  # transformers' BatchEncoding
        yield from tensors(batch.data, torch, depth - 1)


def count(batch: Any, torch: Any) -> Tuple[Optional[int], Optional[int]]:
    """Samples and tokens of a batch.

    Samples are the first dimension of the first tensor that has one. Tokens are the elements of
    the tensor under a usual key, or of a first tensor that holds integers in two dimensions.

    Returns:
        (samples, tokens), each None where it cannot be told.
    """
    samples = tokens = None
    for position, (key, tensor) in enumerate(tensors(batch, torch)):
        if samples is None and tensor.dim() > 0:
            samples = int(tensor.shape[0])
        whole = not tensor.is_floating_point() and tensor.dim() == 2
        if whole and (key in _TOKEN_KEYS or position == 0):
            tokens = int(tensor.numel())
            break
        if position >= 8:
            break
    return samples, tokens


def describe(batch: Any, torch: Any) -> Dict[str, Any]:
    """The facts of a first batch: bytes, whether any of it is pinned, samples, tokens."""
    size, pinned = 0, False
    for _, tensor in tensors(batch, torch):
        size += tensor.numel() * tensor.element_size()
        pinned = pinned or (tensor.device.type == "cpu" and tensor.is_pinned())
    samples, tokens = count(batch, torch)
    return {"bytes": size, "pinned": pinned, "samples": samples, "tokens": tokens}
