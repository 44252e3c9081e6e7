"""What a batch tells: samples, tokens, bytes, pinned or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Dict, Iterator, Optional, Tuple

_DEPTH = 4
_LOOKED_AT = 16
_TOKEN_KEYS = ("input_ids", "tokens", "token_ids")


def tensors(
    batch: Any, torch: Any, most: Optional[int] = _LOOKED_AT, depth: int = _DEPTH
) -> Iterator[Tuple[str, Any]]:
    """The tensors of a nested batch, each with the key that it stands under ('' in a sequence).

    Args:
        batch: what a loader gave.
        torch: the module.
        most: the elements of a sequence that are looked at; all of them when None.
        depth: how deep it may be nested.
    """
    if isinstance(batch, torch.Tensor):
        yield "", batch
    elif not depth:
        return
    elif isinstance(batch, Mapping):  # transformers' BatchEncoding is one, and no dict
        for key, value in batch.items():
            for name, tensor in tensors(value, torch, most, depth - 1):
                yield name or str(key), tensor
    elif isinstance(batch, (list, tuple)):
        for value in batch[:most]:
            yield from tensors(value, torch, most, depth - 1)


def count(
    batch: Any, torch: Any, batch_size: Optional[int] = None
) -> Tuple[Optional[int], Optional[int]]:
    """Samples and tokens of a batch.

    Samples are the first dimension of the first tensor that has one, unless only a sequence (of
    images of different sizes, say) is as long as the loader's batches. Tokens are the elements of
    the tensor under a usual key, or of a first tensor that holds 32 or 64-bit integers in two
    dimensions.

    Args:
        batch: what a loader gave.
        torch: the module.
        batch_size: the loader's, where it has one.

    Returns:
        (samples, tokens), each None where it cannot be told.
    """
    samples = tokens = None
    for position, (key, tensor) in enumerate(tensors(batch, torch)):
        if samples is None and tensor.dim() > 0:
            samples = int(tensor.shape[0])
        ids = tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)
        if ids and (key in _TOKEN_KEYS or position == 0):
            tokens = int(tensor.numel())
            break
        if position >= 8:
            break
    if samples != batch_size and batch_size is not None and _is_long(batch, batch_size):
        samples = batch_size
    return samples, tokens


def is_plain(batch: Any, torch: Any, batch_size: Optional[int]) -> bool:
    """Whether a batch is told by the length of its first element alone, as most are.

    Then batches of the same make need not be gone through one by one.
    """
    if type(batch) not in (list, tuple) or not batch or not isinstance(batch[0], torch.Tensor):
        return False
    first = batch[0]
    return first.dim() > 0 and count(batch, torch, batch_size) == (int(first.shape[0]), None)


def _is_long(batch: Any, length: int) -> bool:
    """Whether a batch, or its first part, is a sequence of this length."""
    if not isinstance(batch, (list, tuple)):
        return False
    first = batch[0] if batch else None
    if isinstance(first, (list, tuple)) and len(first) == length:
        return True
    # Two or three tensors side by side are more likely to be inputs and targets.
    return len(batch) == length and (length > 3 or isinstance(first, (list, tuple, Mapping)))


def describe(batch: Any, torch: Any) -> Dict[str, Any]:
    """The facts of a first batch.

    Returns:
        bytes (of tensors on the host), device_bytes (of those that are on a device already),
        pinned (whether any of it is), samples, tokens.
    """
    size, there, pinned = 0, 0, False
    # Asking whether memory is pinned makes a context on a GPU where there is none yet.
    may_be_pinned = torch.cuda.is_initialized()
    for _, tensor in tensors(batch, torch, most=None):
        weight = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cpu":
            there += weight
            continue
        size += weight
        pinned = pinned or (may_be_pinned and tensor.is_pinned())
    samples, tokens = count(batch, torch)
    return {
        "bytes": size,
        "device_bytes": there,
        "pinned": pinned,
        "samples": samples,
        "tokens": tokens,
    }
