"""Conditions on the columns of a list: ``lag>1000,state=Stable``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.admin.http.api import Schema
from kreplica.admin.http.problems import Problem

CONDITIONS_MAX = 20

SYNTAX = (
    "Comma-separated conditions, such as `lag>1000,state=Stable`; all must be met. Operators: `=`, `!=`, "
    "`<`, `<=`, `>`, `>=`, and `~` for a substring, ignoring case. `null` denotes an unknown value."
)

_CONDITION = re.compile(r"\s*([a-z_]+)\s*(!=|<=|>=|=|<|>|~)\s*(.*?)\s*", re.DOTALL)

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

NUMBER, BOOLEAN, TEXT = "number", "boolean", "text"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column.

    :param value: the value to compare with; None for an unknown value.
    """

    column: str
    operator: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Return True if a value meets the condition.

        An unknown value meets only ``=null`` and ``!=``.
        """
        if self.operator == "=":
            return bool(value == self.value)
        if self.operator == "!=":
            return bool(value != self.value)
        if value is None or self.value is None:
            return False
        if self.operator == "~":
            return self.value.casefold() in str(value).casefold()
        return _ORDER[self.operator](value, self.value)


def kind_of(schema: Schema) -> str | None:
    """Return the type as which a schema's values are compared; None if they are lists or objects."""
    types = schema.get("type")
    if types is None and "anyOf" in schema:
        return next((kind for each in schema["anyOf"] if (kind := kind_of(each)) is not None), None)
    for kind in [types] if isinstance(types, str) else types or ():
        if kind in ("integer", "number"):
            return NUMBER
        if kind == "boolean":
            return BOOLEAN
        if kind == "string":
            return TEXT
    return None


def is_nullable(schema: Schema) -> bool:
    """Return True if a schema allows null."""
    types = schema.get("type", ())
    own = [types] if isinstance(types, str) else types
    return "null" in own or any(map(is_nullable, schema.get("anyOf", ())))


def parse_conditions(
    text: str, schemas: Mapping[str, Schema], unknown: Callable[[str, str], Problem]
) -> list[Condition]:
    """Parse the parameter ``filter``.

    :param schemas: schemas of the columns that can be compared.
    :param unknown: returns the problem of an unknown column, from the parameter and the name.
    :raise Problem: 400.
    """
    parts = text.split(",")
    if len(parts) > CONDITIONS_MAX:
        raise _invalid(f"{len(parts)} conditions exceed the limit of {CONDITIONS_MAX}")
    return [_condition(part, schemas, unknown) for part in parts]


def _condition(text: str, schemas: Mapping[str, Schema], unknown: Callable[[str, str], Problem]) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise _invalid(f"{text[:200]!r} is not a condition")
    name, sign, value = match.groups()
    schema = schemas.get(name)
    kind = None if schema is None else kind_of(schema)
    if schema is None or kind is None:
        raise unknown("filter", name)
    if value == "null" and sign in ("=", "!=") and is_nullable(schema):
        return Condition(name, sign, None)
    if sign == "~" and kind != TEXT:
        raise _invalid(f"{name} is not a string, so ~ cannot be used")
    return Condition(name, sign, _value(name, kind, value))


def _value(name: str, kind: str, text: str) -> Any:
    if kind == NUMBER:
        if re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,19})?", text) is None:
            raise _invalid(f"{name}: {text[:200]!r} is not a number")
        return float(text) if "." in text else int(text)
    if kind == BOOLEAN:
        if text not in ("true", "false"):
            raise _invalid(f"{name}: {text[:200]!r} is neither true nor false")
        return text == "true"
    return text


def _invalid(detail: str) -> Problem:
    return Problem(400, "INVALID_REQUEST", f"filter: {detail}", what_to_do=SYNTAX.replace("`", ""))
