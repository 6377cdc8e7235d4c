"""Checks the text of a filter before it is compiled: its tokens, nesting and loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.errors import KreplicaError
from kreplica.patterns import Automaton, PatternError

WORDS_MAX = 200
NESTING_MAX = 12
UNARY_MAX = 4
"""Maximum number of consecutive ``!`` or ``-`` operators."""

ADDITIONS_MAX = 8
"""Maximum number of ``+`` operators, because each of them can copy a whole text."""

LOOPS = ("all", "exists", "exists_one", "filter")
NOT_IN_LOOPS = ("key", "value", "headers")
"""Variables that are not allowed in a loop, because the library copies them in each iteration."""

FUNCTIONS = (
    "has",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "timestamp",
    "duration",
    "type",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
)
_STATES_MAX = 200
_ERROR_LENGTH_MAX = 200

_TOKEN = r"""\s+ | //[^\n]*
    | (?P<string> [rRbB]{0,2} (?: \"\"\".*?\"\"\" | '''.*?''' | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
    | (?P<number> \d[\w.]* (?: (?<=[eE]) [+-] \d+ )? )
    | (?P<word> [A-Za-z_]\w* )
    | (?P<sign> && | \|\| | [=!<>]= | [-+*/%!<>?:.,()\[\]{}] )
    """
_SHOWN_LENGTH_MAX = 40
"""Maximum length of a token in an error."""

_LIBRARY_ERROR = r"<input>:(\d+):(\d+): ([^\n]*)"
_SYNTAX_ERROR = r"<input>:(\d+):(\d+): Syntax error: ([^\n]*)"
_UNEXPECTED = r"(?:missing '(?P<missing>[^']*)' at|[a-z ]* input) '(?P<found>.*?)'(?: expecting |$)"


class FilterError(KreplicaError):
    """The expression is invalid.

    :ivar column: position of the error in the text, from 1; None if unknown.
    """

    def __init__(self, text: str, column: int | None) -> None:
        super().__init__(text if column is None else f"column {column}: {text}")
        self.column = column

    @classmethod
    def from_library(cls, message: str, expression: Expression) -> FilterError:
        """Return the error for a message of the library, without its list of expected tokens."""
        match = re.search(_SYNTAX_ERROR, message) or re.search(_LIBRARY_ERROR, message)
        if match is None:
            return cls(f"cannot be compiled: {message[:_ERROR_LENGTH_MAX]}", None)
        line, column, reason = int(match[1]), int(match[2]), match[3]
        unexpected, last = re.match(_UNEXPECTED, reason), expression.tokens[-1]
        if unexpected is None:
            return cls(reason[:_ERROR_LENGTH_MAX], column)
        if unexpected["found"] == "<EOF>" or (line == 1 and column >= last.column + len(last.text)):
            missing = unexpected["missing"]
            problem = f"{_excerpt(missing)} is missing" if missing else "it ends"
            return cls(f"the expression is incomplete: {problem} after {_excerpt(last.text)}", None)
        where = f"at column {column}" if line == 1 else f"at line {line}, column {column}"
        error = cls(f"unexpected {_excerpt(unexpected['found'])} {where}", None)
        error.column = column
        return error


def _excerpt(token: str) -> str:
    return f"`{token[:_SHOWN_LENGTH_MAX]}`"


class Token(NamedTuple):
    """A token.

    :param kind: string, number, word or sign.
    :param column: from 1.
    """

    kind: str
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Expression:
    """Facts about a checked expression.

    :param words: all names and the contents of all strings; they include the names of all members that it uses.
    :param accesses: number of times that the key, the value and the headers are used.
    :param whole: variables that are used as a whole, and not only by their members.
    :param loop_variables: names that loops define.
    """

    tokens: tuple[Token, ...]
    words: frozenset[str]
    whole: frozenset[str]
    loop_variables: frozenset[str]
    has_loop: bool
    has_addition: bool
    accesses: int

    def column_of(self, word: str) -> int | None:
        """Return the first column of a word."""
        return next((each.column for each in self.tokens if each.kind == "word" and each.text == word), None)


def check_expression(text: str) -> Expression:
    """Check an expression.

    :raise FilterError: it exceeds a limit, calls an unknown function, or has malformed tokens.
    """
    tokens = tuple(_tokens(text))
    if not tokens:
        raise FilterError("the expression is empty", None)
    if len(tokens) > WORDS_MAX:
        raise FilterError(f"the expression has more than {WORDS_MAX} tokens", tokens[WORDS_MAX].column)
    additions = [each for each in tokens if each.text == "+"]
    if len(additions) > ADDITIONS_MAX:
        raise FilterError(f"the expression has more than {ADDITIONS_MAX} additions", additions[ADDITIONS_MAX].column)
    loop_variables = _check_structure(tokens)
    strings = {_content(each.text) for each in tokens if each.kind == "string"}
    names = {each.text for each in tokens if each.kind == "word"}
    return Expression(
        tokens,
        frozenset(strings | names),
        frozenset(_whole(tokens)),
        frozenset(loop_variables),
        has_loop=bool(loop_variables),
        has_addition=bool(additions),
        accesses=sum(each.kind == "word" and each.text in ("key", "value", "headers") for each in tokens),
    )


def _tokens(text: str) -> Iterator[Token]:
    # Compiled here, because most brokers and commands parse no expression.
    token = re.compile(_TOKEN, re.VERBOSE | re.DOTALL)
    position = 0
    while position < len(text):
        match = token.match(text, position)
        if match is None or match.end() == position:
            raise FilterError(f"unexpected character {text[position]!r}", position + 1)
        if match.lastgroup is not None:
            yield Token(match.lastgroup, match[0], position + 1)
        position = match.end()


def _check_structure(tokens: tuple[Token, ...]) -> set[str]:
    """Check nesting, functions and loops.

    :return: the variables that loops define.
    """
    loop_variables = set()
    open_signs: list[bool] = []  # True for the parenthesis of a loop
    unary = 0
    for index, token in enumerate(tokens):
        unary = unary + 1 if token.text in ("!", "-") else 0
        if unary > UNARY_MAX:
            raise FilterError("too many consecutive operators", token.column)
        if token.text in ("(", "[", "{"):
            is_loop = _is_call(tokens, index) and tokens[index - 1].text in LOOPS
            if is_loop:
                if any(open_signs):
                    raise FilterError("a loop inside a loop is not allowed", tokens[index - 1].column)
                loop_variables.add(tokens[index + 1].text if index + 1 < len(tokens) else "")
            open_signs.append(is_loop)
            if len(open_signs) > NESTING_MAX:
                raise FilterError(f"nested more than {NESTING_MAX} levels deep", token.column)
            if _is_call(tokens, index):
                _check_call(tokens, index, is_loop)
        elif token.text in (")", "]", "}") and open_signs:
            open_signs.pop()
        elif token.text == "+" and any(open_signs):
            raise FilterError("an addition inside a loop is not allowed", token.column)
        elif token.text in NOT_IN_LOOPS and any(open_signs) and (index == 0 or tokens[index - 1].text != "."):
            raise FilterError(f"{token.text} inside a loop is not allowed; use the loop's variable", token.column)
        if token.text == "matches" and any(open_signs):
            raise FilterError("matches inside a loop is not allowed", token.column)
    return loop_variables


def _is_call(tokens: tuple[Token, ...], index: int) -> bool:
    if tokens[index].text != "(" or index == 0:
        return False
    before = tokens[index - 1]
    return before.kind == "word" and before.text != "in"


def _check_call(tokens: tuple[Token, ...], index: int, is_loop: bool) -> None:
    name = tokens[index - 1]
    if not is_loop and name.text not in FUNCTIONS:
        names = ", ".join((*LOOPS, *FUNCTIONS))
        raise FilterError(f"unknown function {name.text}; the functions are: {names}", name.column)
    if name.text == "matches":
        _check_pattern(tokens, index)


def _check_pattern(tokens: tuple[Token, ...], index: int) -> None:
    """Check that a regular expression is constant and small, because it is compiled for each record."""
    is_constant = (
        index + 2 < len(tokens) and tokens[index + 1].kind == "string" and tokens[index + 2].text == ")"
    )
    if not is_constant:
        raise FilterError("matches requires one string, the regular expression", tokens[index].column)
    literal = tokens[index + 1]
    try:
        Automaton(_content(literal.text), _STATES_MAX)
    except PatternError as error:
        raise FilterError(f"invalid regular expression: {error}", literal.column) from None


def _content(literal: str) -> str:
    """Return the content of a string literal."""
    body = literal.lstrip("rRbB")
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    content = body[quotes : len(body) - quotes]
    is_raw = "r" in literal[: len(literal) - len(body)].lower()
    return content if is_raw else re.sub(r"\\(.)", r"\1", content)


def _whole(tokens: tuple[Token, ...]) -> Iterator[str]:
    """Yield the words that are not followed by a member or a constant index."""
    end = Token("sign", "", 0)
    for index, token in enumerate(tokens):
        if token.kind == "word":
            first, second, third = (*tokens[index + 1 : index + 4], end, end, end)[:3]
            is_member = first.text == "." and second.kind == "word" and third.text != "("
            is_constant = first.text == "[" and second.kind == "string" and third.text == "]"
            if not (is_member or is_constant):
                yield token.text
