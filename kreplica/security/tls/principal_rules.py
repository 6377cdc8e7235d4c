"""Rules that map certificate subjects to user names (``ssl.principal.mapping.rules``, KIP-371)."""

from __future__ import annotations

import re
from typing import NamedTuple

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE = re.compile(r"\$(\d)|\\(.)")


class PrincipalRule(NamedTuple):
    """A mapping rule.

    :param pattern: must match the whole name; None for the rule DEFAULT, which keeps the name unchanged.
    :param replacement: template for ``Match.expand``.
    :param case: L to convert to lower case, U to upper case; empty to keep the case.
    """

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the user name; None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        user = match.expand(self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


def parse_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse rules such as ``RULE:^CN=(.*?),.*$/$1/L,DEFAULT``.

    :raise ValueError: a rule is malformed; the message contains its position.
    """
    rules: list[PrincipalRule] = []
    position = 0
    while position < len(text):
        if text[position] in ", \n\t":
            position += 1
            continue
        match = _RULE.match(text, position)
        if match is None or not (match.end() == len(text) or text[match.end()] in ", \n\t"):
            raise ValueError(
                f"column {position + 1}: {text[position : position + 40]!r} is not DEFAULT or "
                "RULE:pattern/replacement/ with an optional L or U"
            )
        rules.append(PrincipalRule(None) if match[1] else _rule(match, position))
        position = match.end()
    return tuple(rules) or (PrincipalRule(None),)


def user_of(rules: tuple[PrincipalRule, ...], name: str) -> str | None:
    """Return the user name from the first matching rule; None if no rule matches."""
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return user
    return None


def _rule(match: re.Match[str], position: int) -> PrincipalRule:
    _, pattern, replacement, case = match.groups()
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
    except re.error as error:
        raise ValueError(f"column {position + 1}: {pattern!r} is not a regular expression: {error}") from None
    template = _REFERENCE.sub(lambda found: f"\\g<{found[1]}>" if found[1] else re.escape(found[2]), replacement)
    used = [int(number) for number in re.findall(r"\$(\d)", replacement)]
    if used and max(used) > compiled.groups:
        raise ValueError(f"column {position + 1}: ${max(used)} is not a group of {pattern!r}")
    return PrincipalRule(compiled, template, case)
