"""Syntax tree of an expression; its named character classes contain only ASCII characters, as in RE2."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from enum import Enum

from kreplica.patterns.characters import Characters, character_set

ASCII = [chr(number) for number in range(128)]

WORD = frozenset(string.ascii_letters + string.digits + "_")

ALL = character_set("").complement()
ALL_OF_A_LINE = character_set("\n").complement()

POSIX = {
    "alnum": character_set(string.ascii_letters + string.digits),
    "alpha": character_set(string.ascii_letters),
    "ascii": character_set(ASCII),
    "blank": character_set("\t "),
    "cntrl": character_set(character for character in ASCII if character < " " or character == "\x7f"),
    "digit": character_set(string.digits),
    "graph": character_set(character for character in ASCII if "!" <= character <= "~"),
    "lower": character_set(string.ascii_lowercase),
    "print": character_set(character for character in ASCII if " " <= character <= "~"),
    "punct": character_set(string.punctuation),
    "space": character_set("\t\n\v\f\r "),
    "upper": character_set(string.ascii_uppercase),
    "word": character_set(WORD),
    "xdigit": character_set(string.hexdigits),
}
"""Classes with the syntax ``[[:alpha:]]``."""

PERL = {"d": character_set(string.digits), "s": character_set("\t\n\f\r "), "w": character_set(WORD)}
"""Classes with the syntax ``\\d``; the capital letter denotes the complement."""

_CATEGORY = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
"""General categories of Unicode."""


class Assertion(Enum):
    """Condition on the gap between two characters."""

    START = "^"
    END = "$"
    WORD_BOUNDARY = "\\b"
    NO_WORD_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set; an empty set never matches."""

    characters: Characters


@dataclass(frozen=True, slots=True)
class Sequence:
    """Concatenation; without parts, the empty expression."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repetition.

    :param most: None if unlimited.
    """

    part: Node
    least: int
    most: int | None


Node = OneOf | Sequence | Choice | Repeat | Assertion


def unicode_category(name: str) -> Characters | None:
    """Return the ASCII characters of a general category, such as ``L`` or ``Nd``; None if it does not exist."""
    if not _CATEGORY.fullmatch(name):
        return None
    return character_set(character for character in ASCII if unicodedata.category(character).startswith(name))
