"""Numbers and phases as sentences say them: the same figures as on the screen."""

from __future__ import annotations

from collections.abc import Sequence

_DOING = {
    "data": "waiting for data",
    "forward": "in forward",
    "backward": "in backward",
    "exposed_comm": "waiting for gradient communication",
    "pre_optimizer": "between backward and the optimizer",
    "optimizer": "in the optimizer",
    "other": "between the optimizer and the next batch",
}

_NAMES = {
    "DATA": "waiting for data",
    "COMM": "gradient communication",
    "STRAGGLER": "a slower rank",
    "LAUNCH": "launching kernels",
}


def percent(share: float) -> str:
    """A share of 0..1 as "38 %"."""
    return f"{100 * share:.0f} %"


def ms(microseconds: float) -> str:
    """Microseconds as "31.2 ms"; three digits at the most."""
    value = microseconds / 1000
    digits = 2 if value < 0.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} ms"


def times(factor: float) -> str:
    """A speed-up as "1.6x"; small ones are not rounded up to something."""
    digits = 2 if factor < 1.1 else 1 if factor < 9.95 else 0
    return f"{factor:.{digits}f}x"


def doing(phase: str) -> str:
    """What a rank does in a phase."""
    return _DOING.get(phase, phase)


def candidate_name(kind: str) -> str:
    """What a kind of bottleneck is called within a sentence."""
    return _NAMES.get(kind, kind.lower())


def ranks(numbers: Sequence[int]) -> str:
    """Ranks as "rank 1" or "ranks 0, 2 and 5"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return "ranks " + ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def capital(sentence: str) -> str:
    """The sentence with a capital first letter, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
