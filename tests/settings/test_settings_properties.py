"""Java's properties format, as java.util.Properties reads it."""

from __future__ import annotations

import pytest

from kreplica.errors import SettingsError
from kreplica.settings.properties import Entry, parse_properties


def values(text: str) -> dict[str, str]:
    return {name: entry.value for name, entry in parse_properties(text, "file").items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t1", {"a": "1"}),
        ("  a=1", {"a": "1"}),
        ("a=1  ", {"a": "1  "}),
        ("a==1", {"a": "=1"}),
        ("a= =1", {"a": "=1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("\n   \n\t\n", {}),
        ("", {}),
        ("# a=1\n  ! b=2\nc=3 # not a comment", {"c": "3 # not a comment"}),
        ("# ends in a backslash \\\na=1", {"a": "1"}),
        ("a=1,\\\n    2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# part of the value", {"a": "1# part of the value"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {}),
        ("a=c:\\\\logs", {"a": "c:\\logs"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"a=\t\n\r\f\q\#", {"a": "\t\n\r\fq#"}),
        (r"a=caf\u00e9", {"a": "café"}),
        (r"\u0061=1", {"a": "1"}),
        (r"a=\uD83D\uDE00", {"a": "😀"}),
        ("a=naïve 😀", {"a": "naïve 😀"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_entries(text, expected):
    """Separators, comments, continued lines, escapes and repeated names are parsed as in Java."""
    assert values(text) == expected


def test_line_of_an_entry():
    """The line is the first line of the entry, whatever is continued or skipped before it."""
    text = "# comment\na=1\\\n  2\n\nb=3\r\nc=4\n"
    assert parse_properties(text, "file") == {
        "a": Entry("a", "12", 2),
        "b": Entry("b", "3", 5),
        "c": Entry("c", "4", 6),
    }


def test_repeated_name_has_the_line_of_the_last():
    """The line must be that of the effective value, because errors refer to it."""
    entries = parse_properties("a=1\nb=2\na=3", "file")
    assert list(entries) == ["b", "a"]
    assert entries["a"].line == 3


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uXYZW", r"\u=1", "a=\\u"])
def test_malformed_unicode_escape(text):
    """The error names the file and the line."""
    with pytest.raises(SettingsError, match=r"file, line 2: malformed \\u escape"):
        parse_properties("x=1\n" + text, "file")


def test_unpaired_surrogate():
    """The surrogate cannot be encoded, so the parser rejects it."""
    with pytest.raises(SettingsError, match=r"file, line 1: a .u escape is half of a surrogate pair"):
        parse_properties(r"a=\uD83D", "file")
