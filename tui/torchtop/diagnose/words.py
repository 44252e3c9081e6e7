"""Numbers and phases as sentences say them: the same figures as on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from ..session.records import MARKERS

_DOING = {
    "data": "waiting for data",
    "forward": "in forward",
    "backward": "in backward",
    "exposed_comm": "waiting for gradient communication",
    "pre_optimizer": "between backward and the optimizer",
    "optimizer": "in the optimizer",
    "other": "between the optimizer and the next batch",
}

_AFTER = {
    "DX": "between two epochs",
    "E0": "waiting for data to evaluate on",
    "E1": "evaluating",
    "nBC": "in backward",
    "nB1": "in backward",
}
"""After markers that are no phase's."""

_PLACES = {
    "data": "waiting for data",
    "exposed_comm": "in communication",
    "pre_optimizer": "before the optimizer",
    "other": "between steps",
}
"""Where it takes fewer words than in `_DOING`."""

_NAMES = {
    "DATA": "waiting for data",
    "COMM": "gradient communication",
    "STRAGGLER": "a slower rank",
    "LAUNCH": "launching kernels",
    "SYNC": "waits for the GPU",
    "H2D": "copies to the GPU",
    "OPTIMIZER": "the optimizer",
    "PERIODIC": "recurring pauses",
}

HEADLINE = 80
"""Characters of a headline at the most: one line of the smallest terminal."""


def headline(*variants: str) -> str:
    """The first sentence that is short enough for a headline; the last one is made so."""
    for text in variants:
        if len(text) <= HEADLINE:
            return text
    return shortened(variants[-1], HEADLINE)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, cut between words where that leaves half of it."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    space = kept.rfind(" ")
    return (kept[:space] if space >= most // 2 else kept).rstrip(" ,;:") + "…"


def percent(share: float) -> str:
    """A share of 0..1 as "38 %"."""
    return f"{100 * share:.0f} %"


def ms(microseconds: float) -> str:
    """Microseconds as "31.2 ms"; three digits at the most."""
    value = microseconds / 1000
    digits = 2 if value < 0.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f} ms"


def ms_range(microseconds: Sequence[float]) -> str:
    """The least and the most of them as "27.3 ms to 74.8 ms", or "25.6 ms each"."""
    least, most = ms(min(microseconds)), ms(max(microseconds))
    return f"{least} each" if least == most else f"{least} to {most}"


def times(factor: float) -> str:
    """A speed-up as "1.6x"; small ones are not rounded up to something."""
    digits = 2 if factor < 1.1 else 1 if factor < 9.95 else 0
    return f"{factor:.{digits}f}x"


def doing(phase: str) -> str:
    """What a rank does in a phase."""
    return _DOING.get(phase, phase)


def doing_after(marker: str) -> str:
    """What a rank does after it has passed a marker."""
    return _AFTER.get(marker) or doing(MARKERS.get(marker, marker))


def place(phase: str) -> str:
    """Where in a step, in a few words."""
    return _PLACES.get(phase) or doing(phase)


def candidate_name(kind: str) -> str:
    """What a kind of bottleneck is called within a sentence."""
    return _NAMES.get(kind, kind.lower())


def ranks(numbers: Sequence[int], most: int = 8) -> str:
    """Ranks as "rank 1", "ranks 0, 2 and 5" or, where they are many, "ranks 0, 2 and 6 more"."""
    named = [str(number) for number in numbers]
    if len(named) > most:
        named = [*named[: most - 1], f"{len(named) - most + 1} more"]
    return ("rank " if len(numbers) == 1 else "ranks ") + a_list(named)


def capital(sentence: str) -> str:
    """The sentence with a capital first letter, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def size(count: float) -> str:
    """Bytes as "94 MB"."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= one:
            return f"{_short(count / one)} {unit}"
    return f"{count:.0f} bytes"


def rate(bytes_per_s: float) -> str:
    """Bytes a second as "238 GB/s"."""
    return size(bytes_per_s) + "/s"


def _short(value: float) -> str:
    return f"{value:,.1f}" if value < 9.95 else f"{value:,.0f}"


def age(seconds: float) -> str:
    """A time that has passed as "41 s", "12 min", "3 h" or "5 days"."""
    for unit, one in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * one:
            return f"{seconds / one:,.0f} {unit}"
    return f"{seconds:.0f} s"


def a_list(items: Sequence[str]) -> str:
    """Words as "a", "a and b" or "a, b and c"."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" and {items[-1]}"


def seconds(microseconds: float) -> str:
    """Microseconds as "12.1 s" from a second on, else as milliseconds."""
    return f"{microseconds / 1e6:,.1f} s" if microseconds >= 1e6 else ms(microseconds)


def count(number: int) -> str:
    """A large number as "670 million"."""
    return f"{number / 1e6:,.0f} million" if number >= 1e7 else f"{number:,}"
