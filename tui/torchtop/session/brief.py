"""Sentences made shorter so that what is left of them can be read as it was meant."""

from __future__ import annotations

import re

DANGLING = frozenset(
    [
        *("a", "an", "and", "as", "at", "but", "by", "for", "from", "has", "in", "is", "of", "on"),
        *("or", "than", "that", "the", "this", "to", "up", "which", "with", "·", "→"),
    ]
)
"""Words that a text which was cut does not end in."""

_SENTENCE = re.compile(r"[.;!?](?=\s)")
_CLAUSE = re.compile(r"[,:](?=\s)")


def brief(text: str, limit: int) -> str:
    """A text of at most so many characters, with an ellipsis where something is missing.

    It is cut after a sentence, else after a clause, else between words; whichever is the first to
    leave half of the limit or more.
    """
    if len(text) <= limit:
        return text
    room = limit - 2
    sentences = [found.end() for found in _SENTENCE.finditer(text) if found.end() <= room]
    clauses = [found.start() for found in _CLAUSE.finditer(text) if found.start() <= room]
    for ends in (sentences, clauses):
        if ends and ends[-1] * 2 >= limit:
            return f"{text[: ends[-1]]} …"
    words = text[: room + 1].rpartition(" ")[0].split(" ")
    while words and words[-1] in DANGLING:
        words.pop()
    kept = " ".join(words).rstrip(",;: ")
    return f"{kept} …" if len(kept) * 2 >= limit else text[: limit - 1] + "…"
