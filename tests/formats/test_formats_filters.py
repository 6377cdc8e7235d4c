"""Filters: results, errors with their columns, and limits on text and data."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.formats.filters import FILTER_LENGTH_MAX, FilterError, FilterFailed, compile_filter
from kreplica.formats.record_data import RecordData
from kreplica.wire.records import Headers

ORDER = {
    "total": 150,
    "price": 2.5,
    "customer": {"name": "Ada", "vip": True},
    "items": [{"name": "tea", "count": 2}, {"name": "cake", "count": 1}],
    "size": 3,
    "id": 2**53 + 1,
}
HEADERS = (("source", b"web"), ("source", b"shop"), ("image", b"\xff"), ("none", None))


def matches(text: str, value: Any = ORDER, key: Any = "42", headers: Headers = HEADERS) -> bool:
    record = RecordData(1, 7, 1_700_000_000_000, "create_time", b"", b"", headers)
    parts = {
        name: {"value": content, "size_bytes": len(json.dumps(content))}
        for name, content in (("key", key), ("value", value))
    }
    found = compile_filter(text)
    return found.matches(record, {name: parts[name] for name in found.variables & set(parts)})


TRUE = [
    "value.total > 100",
    "value.total > 149.5",
    "value.price < 3",
    'value.customer.name == "Ada" && value.customer.vip',
    'value["customer"]["name"].startsWith("A")',
    "has(value.total) && !has(value.discount)",
    'value.items.exists(item, item.name == "cake" && item.count < 2)',
    "value.items.all(item, item.count > 0)",
    "size(value.items.filter(item, item.count > 1)) == 1",
    "value.items[1].name.matches('^c.ke$')",
    "value.items.exists(item, item.name == 'tea' && offset == 7)",
    'value.customer.name in ["Ada", "Bob"]',
    "value.size == 3",
    'headers.source == "shop"',
    "headers.none == null",
    '"image" in headers',
    "timestamp >= 1700000000000",
    'timestamp_type == "create_time" && offset == 7 && partition in [1, 2]',
    'key == "42"',
    "int(key) + 1 == 43",
    "value.id == 9007199254740993",
    '"total" in value',
    "value.size() == 6",
    "value == value",
    "true // a comment",
]


@pytest.mark.parametrize("text", TRUE)
def test_true(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize("text", ["value.total > 200", "false", 'headers.source == "web"', "key == null"])
def test_false(text: str) -> None:
    assert not matches(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("value.discount > 1", ORDER), ("value.total > 1", "text"), ("value.total", ORDER), ("value.total > 'x'", ORDER)],
)
def test_failures(text: str, value: Any) -> None:
    """A filter fails for a record whose member is missing or has another type."""
    with pytest.raises(FilterFailed):
        matches(text, value)


INVALID = [
    ("", None, "the expression is empty"),
    ("total > 100", 1, "unknown variable total; the variables are: key, value, headers"),
    ("value.total > limit", 15, "unknown variable limit"),
    ("value.total ~ 3", 13, "unexpected character '~'"),
    ("value.name.upper() == 'A'", 12, "unknown function upper; the functions are: all, "),
    ("value.items.map(x, x.a)", 13, "unknown function map"),
    ("value.a.all(x, x.b.all(y, y == x))", 20, "a loop inside a loop is not allowed"),
    ("value.a.exists(x, x + 1 == 2)", 21, "an addition inside a loop is not allowed"),
    ("value.a.all(x, x == value.b)", 21, "value inside a loop is not allowed; use the loop's variable"),
    ("value.a.all(x, x.matches('a'))", 18, "matches inside a loop is not allowed"),
    ("key.matches(value.a)", 12, "matches requires one string, the regular expression"),
    ("key.matches('(')", 13, "invalid regular expression: "),
    ("key.matches('(a{100}){100}')", 13, "invalid regular expression: "),
    ("!!!!!!true", 5, "too many consecutive operators"),
    ("(" * 20 + "true" + ")" * 20, 13, "nested more than 12 levels deep"),
    (" + ".join("1" * 20), 35, "the expression has more than 8 additions"),
    ("true" + " && true" * 120, 801, "the expression has more than 200 tokens"),
    ("'" + "x" * FILTER_LENGTH_MAX + "'", None, "the expression is longer than 1000 characters"),
    ("'open", 1, "unexpected character"),
]


@pytest.mark.parametrize(("text", "column", "message"), INVALID, ids=[row[0][:30] for row in INVALID])
def test_invalid(text: str, column: int | None, message: str) -> None:
    """The error names the column."""
    with pytest.raises(FilterError) as refused:
        compile_filter(text)
    assert message in str(refused.value)
    if column is not None:
        assert (refused.value.column, str(refused.value)[: 8 + len(str(column))]) == (column, f"column {column}:")


SYNTAX_ERRORS = [
    ("value.total >", "the expression is incomplete: it ends after `>`"),
    ("value.total > 100 && // and", "the expression is incomplete: it ends after `&&`"),
    ("value.", "the expression is incomplete: it ends after `.`"),
    ("value.total ? 1", "the expression is incomplete: it ends after `1`"),
    ("(value.total > 5", "the expression is incomplete: `)` is missing after `5`"),
    ("value.items[", "the expression is incomplete: it ends after `[`"),
    ("value.total > 5)", "unexpected `)` at column 16"),
    ("value.items[] == 1", "unexpected `]` at column 13"),
    ("value.name == 'a' 'b'", "unexpected `'b'` at column 19"),
    ("value..total > 1", "unexpected `..` at column 7"),
    ("value.total ==\n >", "unexpected `>` at line 2, column 2"),
    ("'" + "x" * 100 + "' 'y'", "unexpected `'y'` at column 104"),
    ("true '" + "x" * 100 + "'", "unexpected `'" + "x" * 39 + "` at column 6"),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX_ERRORS, ids=[row[0][:30] for row in SYNTAX_ERRORS])
def test_syntax_errors(text: str, message: str) -> None:
    """The error is plain text, without the parser's list of tokens."""
    with pytest.raises(FilterError) as refused:
        compile_filter(text)
    assert str(refused.value) == message


def test_large_values() -> None:
    """Only the members that the expression names are converted; if they are too large, the filter fails."""
    large = {"total": 5, "rest": list(range(100_000))}
    assert matches("value.total == 5", large)
    with pytest.raises(FilterFailed, match="the value has more than 10,000 nested values, the limit for 1 use"):
        matches("size(value.rest) > 5", large)
    with pytest.raises(FilterFailed, match="the value has more than 5,000 nested values, the limit for 2 uses"):
        matches("value.rest[0] == value.rest[1]", {"rest": list(range(6000))})
    with pytest.raises(FilterFailed, match="the limit with a loop"):
        matches("value.rest.all(x, x > 5)", {"rest": list(range(20_000))})


def test_large_headers() -> None:
    """Headers are limited like keys and values."""
    large = (("a", b"x" * 70_000), ("b", b"y"))
    assert matches("headers.b == 'y'", headers=large)
    with pytest.raises(FilterFailed, match="the headers have more than 65,536 bytes, the limit with a loop"):
        matches("headers.a + headers.a == ''", headers=large)
    with pytest.raises(FilterFailed, match="the headers have 4,200,001 bytes; the limit for 1 use"):
        matches("headers.a == 'y'", headers=(("a", b"x" * 4_200_000),))
    with pytest.raises(FilterFailed, match="the headers have more than 10,000 nested values, the limit for 1 use"):
        matches("size(headers) > 5", headers=tuple((str(number), b"v") for number in range(20_000)))


def test_worst_case_duration() -> None:
    """The slowest allowed expressions, which hold the interpreter lock, take only milliseconds."""
    worst = [
        ("value.a.all(x, x == 0 && !(x in [1, 2, 3]))", {"a": [0] * 1990}),
        ("value.a.all(x, !x.contains('z'))", {"a": ["y" * 100] * 600}),
        ("!value.b.matches('(a|b)*z')", {"b": "ab" * 500_000}),
        (" + ".join(["value.b"] * 9) + " == ''", {"b": "y" * 65_000}),
        (" && ".join(["value.a[0] == 0"] * 20), {"a": [0] * 490}),
        (" && ".join(["!value.b.contains('x')"] * 10), {"b": "y" * 400_000}),
    ]
    for text, value in worst:
        started_s = time.perf_counter()
        try:
            matches(text, value)
        except FilterFailed:
            pass
        # The limit is a hundred times the duration on an idle machine.
        assert time.perf_counter() - started_s < 0.5, text


WORDS = st.sampled_from(
    [
        *"()[]{}.,?:!+-*/%<>",
        "&&", "||", "==", "in", " ", "value", "key", ".a", "'s'", "1", "1.5", "u", "null", "true", "has(", ".all(x,",
        ".filter(", "size(", "\\", '"', "'''", "headers", "é", "\x00",
    ]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40).map("".join))
def test_any_text(text: str) -> None:
    """Any text is compiled or refused, and its evaluation has a result or fails; no other exception is raised."""
    try:
        matches(text)
    except (FilterError, FilterFailed):
        pass
