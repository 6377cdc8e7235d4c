"""What an expression is made of.  Characters stand for those of them that a topic's name may have."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from enum import Enum

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""All that names of topics are made of."""

DIGITS = frozenset(string.digits)
WORD = frozenset(string.ascii_letters + string.digits + "_")

POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
"""The classes that are written ``[[:alpha:]]``."""

PERL = {"d": DIGITS, "s": frozenset[str](), "w": WORD}
"""The classes that are written ``\\d``; the capital letter means all others."""

_CATEGORY = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
"""The general categories of Unicode."""


class Assertion(Enum):
    """What holds between two characters."""

    START = "^"
    END = "$"
    WORD_BOUNDARY = "\\b"
    NO_WORD_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of these; of none, what never matches a name."""

    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; none of them is the empty expression."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One or the other."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """:param most: None for any number."""

    part: Node
    least: int
    most: int | None


Node = OneOf | Sequence | Choice | Repeat | Assertion


def unicode_category(name: str) -> frozenset[str] | None:
    """The characters of a general category of Unicode, such as ``L`` or ``Nd``; None if there is none."""
    if not _CATEGORY.fullmatch(name):
        return None
    return frozenset(each for each in ALPHABET if unicodedata.category(each).startswith(name))


def any_case(characters: frozenset[str]) -> frozenset[str]:
    """These characters as capital and as small letters."""
    return frozenset(case for each in characters for case in (each.lower(), each.upper()))
