"""Conditions on records in the Common Expression Language (CEL): ``value.total > 100 && headers.codec == "zstd"``.

The library evaluates an expression in one call that Python cannot interrupt, so limits on the expression and
the data keep each evaluation to a few milliseconds (decision 67).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import KreplicaError
from kreplica.formats.cel_library import cel_library
from kreplica.formats.filter_syntax import Expression, FilterError, check_expression
from kreplica.formats.record_data import RecordData

__all__ = ["FILTER_LENGTH_MAX", "VARIABLES", "FilterError", "FilterFailed", "RecordFilter", "compile_filter"]

FILTER_LENGTH_MAX = 1000

VARIABLES = ("key", "value", "headers", "timestamp", "timestamp_type", "offset", "partition")

NODES_MAX = 10_000
"""Limit on the number of values in the used members of a key, a value or the headers, divided by the accesses.

The library copies a variable at each access; 10,000 values take 2 to 5 ms.
"""

LOOPED_NODES_MAX = 2000
"""The same limit for an expression with a loop such as ``exists``."""

BYTES_MAX = 4 * 1024 * 1024
"""Limit on the size of a key, a value or the headers, divided by the number of accesses."""

LIMITED_BYTES_MAX = 64 * 1024
"""Maximum size of a key, a value or the headers if the expression has a loop or an addition."""

_REASON_LENGTH_MAX = 200


class FilterFailed(KreplicaError):
    """The expression cannot be evaluated for a record, for example because a field is missing."""


class RecordFilter:
    """A compiled expression; ``compile_filter`` creates it.

    :ivar variables: the variables that the expression uses.
    """

    def __init__(self, program: Any, expression: Expression) -> None:
        self._program = program
        self._expression = expression
        self.variables = frozenset(program.variables()) & frozenset(VARIABLES)

    def matches(self, record: RecordData, parts: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return True if the expression is true for a record.

        :param parts: the decoded key and value, if they are in ``variables``.
        :raise FilterFailed: the expression has no Boolean value for this record.
        """
        values: dict[str, Any] = {name: self._value(name, part) for name, part in parts.items()}
        if "headers" in self.variables:
            headers = {name: _header(content) for name, content in record.headers}
            size = sum(len(name) + len(content or b"") for name, content in record.headers)
            values["headers"] = self._value("headers", {"value": headers, "size_bytes": size})
        for name in ("timestamp_type", "offset", "partition"):
            values[name] = getattr(record, name)
        values["timestamp"] = record.timestamp_ms
        try:
            result = self._program.execute(values)
        except Exception as error:  # the library raises errors of many types
            raise FilterFailed(_reason(error)) from None
        if not isinstance(result, bool):
            raise FilterFailed(f"the result is neither true nor false, but {str(result)[:_REASON_LENGTH_MAX]!r}")
        return result

    def _value(self, name: str, part: Mapping[str, Any]) -> Any:
        value, size = part["value"], part["size_bytes"]
        if isinstance(value, dict) and name not in self._expression.whole:
            words = self._expression.words
            value = {member: each for member, each in value.items() if member in words}
        expression = self._expression
        subject = "the headers have" if name == "headers" else f"the {name} has"
        if size > LIMITED_BYTES_MAX and (expression.has_loop or expression.has_addition):
            raise FilterFailed(f"{subject} more than {LIMITED_BYTES_MAX:,} bytes, the limit with a loop or +")
        uses = "1 use" if expression.accesses == 1 else f"{expression.accesses} uses"
        if size * expression.accesses > BYTES_MAX:
            limit = BYTES_MAX // expression.accesses
            raise FilterFailed(f"{subject} {size:,} bytes; the limit for {uses} in a filter is {limit:,}")
        nodes_max = (LOOPED_NODES_MAX if expression.has_loop else NODES_MAX) // expression.accesses
        if size > nodes_max and _exceeds(value, nodes_max):
            raise FilterFailed(f"{subject} more than {nodes_max:,} nested values, the limit for {uses} in a filter")
        return value


def compile_filter(text: str) -> RecordFilter:
    """Compile an expression.

    :raise FilterError: it is not valid, uses an unknown variable or function, or exceeds a limit.
    """
    if len(text) > FILTER_LENGTH_MAX:
        raise FilterError(f"the expression is longer than {FILTER_LENGTH_MAX} characters", None)
    expression = check_expression(text)
    try:
        program = cel_library().compile(text)
    except Exception as error:  # the library raises errors of many types
        raise FilterError.from_library(str(error), expression) from None
    unknown = sorted(set(program.variables()) - set(VARIABLES) - set(expression.loop_variables))
    if unknown:
        column = expression.column_of(unknown[0])
        raise FilterError(f"unknown variable {unknown[0]}; the variables are: {', '.join(VARIABLES)}", column)
    return RecordFilter(program, expression)


def _header(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_REASON_LENGTH_MAX]


def _exceeds(value: Any, count_max: int) -> bool:
    """Return True if a JSON value has more than ``count_max`` parts."""
    remaining = count_max
    stack = [value]
    while stack:
        remaining -= 1
        if remaining < 0:
            return True
        each = stack.pop()
        if isinstance(each, dict):
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)
    return False
