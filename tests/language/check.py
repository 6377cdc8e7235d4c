"""Checks names, comments, messages, pages and scripts against the style guide: ``python tests/language/check.py``.

``ratchet.json`` records the number of matches per package, which may only decrease.  With paths as arguments, every
match in these files is printed, and nothing is compared.  ``--update`` records the current numbers.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import rules

ROOT = Path(__file__).parents[2]
RATCHET = Path(__file__).parent / "ratchet.json"
ALLOWED = Path(__file__).parent / "allowed.txt"
SCRIPTS = "kreplica/admin/dashboard/"
PROSE_SUFFIXES = (".md", ".properties", ".service", ".target", ".env", ".conf")
OTHER_FILES = ("Makefile", "setup.cfg")
EXCLUDED = ("tests/language/", "docs/reference/performance/")
"""Files that are not checked: the rules themselves, and measured data."""

COMMENT = re.compile(r"(?:^|\s)#+:?\s+(?!noqa|type:|fmt:|pragma|pylint|ruff)(.*)$")
TOKEN = re.compile(
    r"(?P<comment>#[^\n]*)"
    r"|(?P<long>\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*\"\"\")"
    r"|(?P<short>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|\b(?:def|class)\s+(?P<name>\w+)|(?<=[(\s.])(?P<target>\w+)(?=(?::[^=\n\"]+)? = )",
    re.DOTALL,
)
SCRIPT_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|\b(?:const|let|function\*?|class)\s+(?P<names>\{[^}]*\}|\[[^\]]*\]|\w+)",
    re.DOTALL,
)
CODE_BLOCK = re.compile(r"^(```|~~~)")
CODE_SPAN = re.compile(r"``[^`]+``|`[^`]+`|\]\([^)]*\)")
WORD = re.compile(r"[a-z]+")
WORDS_MIN = 3
"""Minimum number of words in a message; shorter string literals are assumed to be keys or values."""


class Match(NamedTuple):
    """An occurrence of a banned construction."""

    path: str
    line: int
    rule: rules.Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule.name}: {self.text.strip()[:100]!r} ({self.rule.advice})"


def source_files(root: Path = ROOT) -> list[str]:
    """Return the paths of all files below root that ``.gitignore`` does not list.

    Git is not used, so that a copy of the checkout without its history gives the same files.
    """
    ignored = ignored_patterns(root)
    paths = []
    for directory, directories, names in os.walk(root):
        at = Path(directory).relative_to(root)
        directories[:] = sorted(name for name in directories if not is_ignored((at / name).as_posix(), ignored))
        paths += [path for name in sorted(names) if is_checked(path := (at / name).as_posix())]
    return paths


def ignored_patterns(root: Path) -> list[str]:
    """Return the patterns of ``.gitignore``, without the slash that marks a directory, and Git's own directory."""
    return [".git", *(line.strip().rstrip("/") for line in (root / ".gitignore").read_text().splitlines() if line)]


def is_ignored(path: str, patterns: Iterable[str]) -> bool:
    """Return True if a directory matches a pattern, by its path if the pattern has a slash, otherwise by its name."""
    return any(fnmatch(path if "/" in pattern else Path(path).name, pattern) for pattern in patterns)


def is_checked(path: str) -> bool:
    if path.startswith(EXCLUDED):
        return False
    if path.endswith(".js"):
        return path.startswith(SCRIPTS)
    return path.endswith((".py", *PROSE_SUFFIXES)) or Path(path).name in OTHER_FILES


def package(path: str) -> str:
    """Return the package to which matches in a file are attributed: the first two levels of its path."""
    parts = Path(path).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


class Checker:
    """Finds matches of all rules in a file, except allowed phrases."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = re.compile("|".join(allowed), re.IGNORECASE) if allowed else None

    def matches(self, path: str, text: str) -> Iterator[Match]:
        if path.endswith(".py"):
            yield from self._python(path, text)
        elif path.endswith(".md"):
            yield from self._page(path, text)
        elif path.endswith(".js"):
            yield from self._script(path, text)
        else:
            for number, line in enumerate(text.splitlines(), 1):
                found = COMMENT.search(line)
                if found:
                    yield from self._prose(path, number, found[1])

    def _prose(self, path: str, first: int, text: str, is_docstring: bool = False) -> Iterator[Match]:
        for number, line in enumerate(text.splitlines()):
            words = WORD.findall(line.lower())
            candidates = [(rule, pattern) for rule, triggers, pattern in rules.COMPILED
                          if not triggers.isdisjoint(words)]  # fmt: skip
            if not candidates:
                continue
            shown = CODE_SPAN.sub("`code`", line.strip())
            if self._allowed is not None:
                shown = self._allowed.sub("", shown)
            for rule, pattern in candidates:
                if rule.name in rules.FRAGMENT_RULES and not (is_docstring and number == 0):
                    continue
                if pattern.search(shown):
                    yield Match(path, first + number, rule, line)

    def _page(self, path: str, text: str) -> Iterator[Match]:
        in_code = False
        for number, line in enumerate(text.splitlines(), 1):
            if CODE_BLOCK.match(line.strip()):
                in_code = not in_code
            elif not in_code:
                yield from self._prose(path, number, line)

    def _python(self, path: str, text: str) -> Iterator[Match]:
        """Search comments, strings and names of definitions; one regular expression is faster than a parser."""
        line, end = 1, 0
        for found in TOKEN.finditer(text):
            line += text.count("\n", end, found.start())
            end = found.start()
            token = found[0]
            if found.lastgroup == "comment":
                comment = COMMENT.search(token)
                if comment:
                    yield from self._prose(path, line, comment[1])
            elif name := found["name"] or found["target"]:
                if rules.NAME_PATTERN.search(snake_case(name)):
                    yield Match(path, line, rules.NAMES, name)
                elif path.startswith("kreplica/") and rules.PRODUCT_NAME_PATTERN.search(snake_case(name)):
                    yield Match(path, line, rules.PRODUCT_NAMES, name)
            elif token.count(" ") >= WORDS_MIN - 1:
                is_docstring = not text[text.rfind("\n", 0, end) + 1 : end].strip() and token.startswith('"""')
                yield from self._prose(path, line, token.strip("rfbu\"'"), is_docstring)

    def _script(self, path: str, text: str) -> Iterator[Match]:
        """Search comments, strings and names of declarations in JavaScript."""
        for found in SCRIPT_TOKEN.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            if found["names"]:
                for name in re.findall(r"\w+", found["names"]):
                    if rules.JAVASCRIPT_NAME_PATTERN.search(snake_case(name)):
                        yield Match(path, line, rules.JAVASCRIPT_NAMES, name)
            elif found[0].count(" ") >= WORDS_MIN - 1:
                yield from self._prose(path, line, found[0].strip('/*" '))


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def allowed_phrases() -> list[str]:
    """Return the regular expressions in the allow-list, which has one per line, and reasons after ``#``."""
    lines = (line.partition("#")[0].strip() for line in ALLOWED.read_text().splitlines())
    return [line for line in lines if line]


def all_matches(paths: Iterable[str]) -> list[Match]:
    checker = Checker(allowed_phrases())
    return [match for path in paths for match in checker.matches(path, (ROOT / path).read_text())]


def counts(matches: Iterable[Match]) -> dict[str, int]:
    return dict(sorted(Counter(package(match.path) for match in matches).items()))


def excess(now: Mapping[str, int], recorded: Mapping[str, int]) -> dict[str, int]:
    """Return the packages that have more matches than recorded, with their numbers of matches."""
    return {name: number for name, number in now.items() if number > recorded.get(name, 0)}


def main(arguments: Sequence[str]) -> int:
    update = "--update" in arguments
    chosen = tuple(Path(path).resolve().relative_to(ROOT).as_posix() for path in arguments if not path.startswith("--"))
    paths = source_files()
    if chosen:
        paths = [path for path in paths if any(path == each or path.startswith(f"{each}/") for each in chosen)]
    matches = all_matches(paths)
    if chosen:
        print("\n".join(map(str, matches)), f"{len(matches)} matches", sep="\n")
        return 0
    now = counts(matches)
    if update:
        RATCHET.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    recorded = json.loads(RATCHET.read_text())
    too_many = excess(now, recorded)
    for match in matches:
        if package(match.path) in too_many:
            print(match)
    for name, number in too_many.items():
        print(f"{name}: {number} banned constructions, {recorded.get(name, 0)} recorded in {RATCHET.relative_to(ROOT)}")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
