"""Parses RE2's syntax, which excludes back references and look-around.

Only whole texts are matched, so greedy and reluctant repetitions are equivalent, and so are capturing and
non-capturing groups.  ``^`` and ``$`` match only at the ends of the text, regardless of flags.
"""

from __future__ import annotations

import re

from kreplica.errors import KreplicaError
from kreplica.patterns.characters import Characters, character_set
from kreplica.patterns.syntax import (
    ALL,
    ALL_OF_A_LINE,
    PERL,
    POSIX,
    Assertion,
    Choice,
    Node,
    OneOf,
    Repeat,
    Sequence,
    unicode_category,
)

REPEAT_MAX = 1000
"""Maximum number in braces, as in RE2."""

RANGE_MAX = 100_000
"""Maximum number of characters in one range; the largest scripts have fewer."""

NESTING_MAX = 100
"""Maximum depth of nested groups."""

_COUNT = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAMED_GROUP = re.compile(r"\(\?P?<\w+>")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{2}")
_CATEGORY = re.compile(r"[pP](?:([A-Za-z])|\{(\^?)(\w+)\})")
_POSIX = re.compile(r"\[:(\^?)(\w+):\]")
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = {
    "A": Assertion.START,
    "z": Assertion.END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}


class PatternError(KreplicaError):
    """The expression is not valid in RE2; the message names the reason and the position."""


def parse(pattern: str) -> Node:
    """Parse an expression.

    :raise PatternError: the expression is malformed.
    """
    return _Parser(pattern).whole()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        self._any_case = False
        self._dot_is_all = False
        self._depth = 0

    def whole(self) -> Node:
        node = self._choice()
        if self._position < len(self._text):
            raise self._error("unmatched )")
        return node

    def _choice(self) -> Node:
        outer_flags = self._any_case, self._dot_is_all
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        self._any_case, self._dot_is_all = outer_flags
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            if self._skip("\\Q"):
                parts += self._quoted()
                continue
            part = self._atom()
            if part is not None:
                parts.append(self._with_repetition(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        """Parse text between ``\\Q`` and ``\\E`` or the end; a following repetition applies to its last character."""
        end = self._text.find("\\E", self._position)
        quoted = self._text[self._position : end if end >= 0 else None]
        self._position = end + 2 if end >= 0 else len(self._text)
        parts: list[Node] = [self._literal(character) for character in quoted]
        if parts:
            parts[-1] = self._with_repetition(parts[-1])
        return parts

    def _with_repetition(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._skip("?")  # reluctant
        if self._bounds() is not None:
            raise self._error("a repetition operator follows another")
        minimum, maximum = bounds
        if max(minimum, maximum or 0) > REPEAT_MAX or (maximum is not None and maximum < minimum):
            raise self._error(f"invalid repetition counts: they must be at most {REPEAT_MAX}, with the minimum first")
        return Repeat(part, minimum, maximum)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Parse the bounds of a repetition; None if there is no repetition, since a brace may be a literal."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return bounds
        match = self._match(_COUNT)
        if match is None:
            return None
        minimum = int(match[1])
        if match[2] is None:
            return minimum, minimum
        return minimum, int(match[3]) if match[3] else None

    def _atom(self) -> Node | None:
        """Parse one repeatable element; None for flags."""
        character = self._text[self._position]
        if character == "(":
            return self._group()
        if character == "[":
            return self._case(self._class())
        if character in "*+?" or _COUNT.match(self._text, self._position):
            raise self._error("nothing precedes the repetition operator")
        self._position += 1
        if character == ".":
            return OneOf(ALL if self._dot_is_all else ALL_OF_A_LINE)
        if character == "^":
            return Assertion.START
        if character == "$":
            return Assertion.END
        if character == "\\":
            return self._escape()
        return self._literal(character)

    def _group(self) -> Node | None:
        flags = self._match(_FLAGS)
        outer_flags = self._any_case, self._dot_is_all
        if flags is not None:
            self._any_case = ("i" in flags[1] or self._any_case) and "i" not in (flags[2] or "")
            self._dot_is_all = ("s" in flags[1] or self._dot_is_all) and "s" not in (flags[2] or "")
            if flags[3] == ")":
                return None
        elif self._match(_NAMED_GROUP) is None:
            self._position += 1
            if self._text.startswith("?", self._position):
                raise self._error("unsupported kind of group")
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"more than {NESTING_MAX} nested groups")
        node = self._choice()
        self._depth -= 1
        self._any_case, self._dot_is_all = outer_flags
        if not self._skip(")"):
            raise self._error("missing ) of a group")
        return node

    def _escape(self) -> Node:
        """Parse an escape outside brackets, after its backslash."""
        assertion = _ASSERTIONS.get(self._text[self._position : self._position + 1])
        if assertion is not None:
            self._position += 1
            return assertion
        return self._case(self._escaped_characters())

    def _escaped_characters(self) -> Characters:
        """Parse an escape that denotes characters."""
        match = self._match(_CATEGORY)
        if match is not None:
            return self._category(match)
        match = self._match(_HEX)
        if match is not None:
            return character_set(self._code_point(int(match[1] or match[2], 16)))
        match = self._match(_OCTAL)
        if match is not None:
            return character_set(chr(int(match[0], 8)))
        character = self._text[self._position : self._position + 1]
        self._position += 1
        if character.lower() in PERL:
            characters = PERL[character.lower()]
            return characters if character.islower() else characters.complement()
        if character in _CONTROL:
            return character_set(_CONTROL[character])
        if not character or character.isalnum():
            raise self._error(f"unsupported escape: \\{character}")
        return character_set(character)

    def _code_point(self, number: int) -> str:
        if number > 0x10FFFF:
            raise self._error("character code above 10FFFF")
        return chr(number)

    def _category(self, match: re.Match[str]) -> Characters:
        characters = unicode_category(match[1] or match[3])
        if characters is None:
            raise self._error(f"unsupported character class: \\{match[0]}")
        is_negated = (match[0][0] == "P") != (match[2] == "^")
        return characters.complement() if is_negated else characters

    def _class(self) -> Characters:
        """Parse a class in brackets."""
        self._position += 1
        is_negated = self._skip("^")
        characters = character_set("")
        is_first = True
        while is_first or not self._skip("]"):
            if self._position >= len(self._text):
                raise self._error("missing ] of a character class")
            characters = characters.union(self._class_item())
            is_first = False
        if self._any_case:
            characters = characters.any_case()
        return characters.complement() if is_negated else characters

    def _class_item(self) -> Characters:
        match = self._match(_POSIX)
        if match is not None:
            if match[2] not in POSIX:
                raise self._error(f"unsupported character class: {match[0]}")
            return POSIX[match[2]].complement() if match[1] else POSIX[match[2]]
        start = self._class_character()
        if len(start.members) != 1 or start.is_complement or not self._at_a_range():
            return start
        self._position += 1
        end = self._class_character()
        (first,), last = start.members, max(end.members, default="")
        if len(end.members) != 1 or end.is_complement or last < first:
            raise self._error("invalid character range: its end is missing or before its start")
        if ord(last) - ord(first) >= RANGE_MAX:
            raise self._error(f"character range of more than {RANGE_MAX} characters")
        return character_set(map(chr, range(ord(first), ord(last) + 1)))

    def _at_a_range(self) -> bool:
        return self._text.startswith("-", self._position) and not self._text.startswith("-]", self._position)

    def _class_character(self) -> Characters:
        character = self._text[self._position : self._position + 1]
        self._position += 1
        if not character:
            raise self._error("missing ] of a character class")
        return self._escaped_characters() if character == "\\" else character_set(character)

    # --- small steps -------------------------------------------------------------------------------------------------

    def _literal(self, character: str) -> OneOf:
        return self._case(character_set(character))

    def _case(self, characters: Characters) -> OneOf:
        return OneOf(characters.any_case() if self._any_case else characters)

    def _skip(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        match = expression.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return match

    def _error(self, problem: str) -> PatternError:
        return PatternError(f"{problem}, at character {self._position} of {self._text[:100]!r}")
