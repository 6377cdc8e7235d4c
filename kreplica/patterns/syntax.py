"""Syntax tree of an expression; named classes contain only ASCII characters, as in RE2."""

from __future__ import annotations

import re
import string
import unicodedata
from dataclasses import dataclass
from enum import Enum

from kreplica.patterns.characters import Characters, these

ASCII = [chr(number) for number in range(128)]

WORD = frozenset(string.ascii_letters + string.digits + "_")

ALL = these("").complement()
ALL_OF_A_LINE = these("\n").complement()

POSIX = {
    "alnum": these(string.ascii_letters + string.digits),
    "alpha": these(string.ascii_letters),
    "ascii": these(ASCII),
    "blank": these("\t "),
    "cntrl": these(each for each in ASCII if each < " " or each == "\x7f"),
    "digit": these(string.digits),
    "graph": these(each for each in ASCII if "!" <= each <= "~"),
    "lower": these(string.ascii_lowercase),
    "print": these(each for each in ASCII if " " <= each <= "~"),
    "punct": these(string.punctuation),
    "space": these("\t\n\v\f\r "),
    "upper": these(string.ascii_uppercase),
    "word": these(WORD),
    "xdigit": these(string.hexdigits),
}
"""Classes with the syntax ``[[:alpha:]]``."""

PERL = {"d": these(string.digits), "s": these("\t\n\f\r "), "w": these(WORD)}
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
    return these(each for each in ASCII if unicodedata.category(each).startswith(name))
