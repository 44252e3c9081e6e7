"""What of a command line and of options goes into a summary that people pass on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SECRET = re.compile(
    r"(?i)(?:^|[-_.])(?:(?:api|access|private|secret|license|encryption)[-_]?key|token|secret"
    r"|passw(?:or)?d|passphrase|pwd|auth|bearer|cookie|credentials?)(?:$|[-_.=:])"
)
_SECRET_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,}|nvapi-[\w-]{16,}"
    r"|AKIA[A-Z0-9]{12,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"
    r"|(?<=://)[^/\s@]+(?=@)"
)
"""Keys by the prefixes that their issuers give them, and what stands before the host in a URL."""
HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Whether a name looks like that of a secret (``--api-key``, ``WANDB_API_KEY``)."""
    return bool(_SECRET.search(name))


def argv(words: Sequence[str]) -> list[str]:
    """A command line in which the values of what looks like a secret are hidden."""
    hidden: list[str] = []
    hide_next = False
    for word in map(str, words):
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            hidden.append(HIDDEN)
        elif equals and is_secret(name):
            hidden.append(f"{name}={HIDDEN}")
        else:
            hidden.append(_SECRET_VALUE.sub(HIDDEN, word))
        hide_next = word.startswith("-") and not equals and is_secret(word)
    return hidden


def mapping(values: Mapping[str, object]) -> dict[str, object]:
    """Options or variables in which secrets are hidden."""
    return {
        name: HIDDEN
        if is_secret(name)
        else (_SECRET_VALUE.sub(HIDDEN, value) if isinstance(value, str) else value)
        for name, value in values.items()
    }
