"""Validates responses of other brokers' admin APIs.

The other side may run another release or another server, so its response is untrusted input.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kreplica.admin.http.api import Schema
from kreplica.admin.http.problems import SHOWN_MAX, Problem

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

DEPTH_MAX = 64
"""Maximum nesting depth of objects and lists in a response."""

INTEGER_MAX = 2**63 - 1

_OWN_MEMBERS = {"title", "status", "detail", "what_to_do", "instance"}


class PeerResponseValidator:
    """Validates the responses of other brokers for one route.

    Members and enumeration values that a newer release may have added are accepted.

    :param schema: the schema of a successful response; None if it has no body.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from jsonschema import Draft202012Validator

        return Draft202012Validator(_tolerant(self._schema or {}))

    def read(self, broker_id: int, status: int, text: bytes) -> Any:
        """Return the document of a successful response.

        :param broker_id: the sender, for the problem.
        :raise Problem: the sender's problem; 502 if the response is not valid for the route.
        """
        if not 200 <= status < 300:
            raise _forwarded_problem(broker_id, status, _parse(broker_id, status, text) if text.strip() else None)
        if self._schema is None:
            return None
        document = _parse(broker_id, status, text)
        for error in self._validator.iter_errors(document):
            raise _malformed(broker_id, status, f"{_where(error)} {_reason(error)}")
        return document


def _tolerant(schema: Any) -> Any:
    """Remove the restrictions that a newer release may violate: those of members and enumerated values."""
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "properties":
            kept[keyword] = {name: _tolerant(each) for name, each in value.items()}
        elif keyword == "anyOf":
            kept[keyword] = [_tolerant(each) for each in value]
        elif keyword != "enum" and (keyword, value) != ("additionalProperties", False):
            kept[keyword] = _tolerant(value)
    return kept


# --- JSON ------------------------------------------------------------------------------------------------------------


def _parse(broker_id: int, status: int, text: bytes) -> Any:
    try:
        document = json.loads(text, parse_float=_float, parse_int=_integer, parse_constant=_constant)
        if b"\\u" in text:
            json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded as UTF-8
    except RecursionError:
        raise _malformed(broker_id, status, "is nested too deeply") from None
    except ValueError as error:
        raise _malformed(broker_id, status, f"is not JSON: {str(error)[:SHOWN_MAX]}") from None
    if _is_deep(document):
        raise _malformed(broker_id, status, f"is nested deeper than {DEPTH_MAX} levels")
    return document


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > 20 or abs(int(text)) > INTEGER_MAX:
        raise ValueError("an integer has more than 64 bits")
    return int(text)


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(DEPTH_MAX):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return False
    return True


# --- problems --------------------------------------------------------------------------------------------------------


def _forwarded_problem(broker_id: int, status: int, document: Any) -> Problem:
    """Return the problem that the other broker sent, without members of the wrong type."""
    sent = document if isinstance(document, dict) else {}
    texts = {name: sent[name] for name in _OWN_MEMBERS if isinstance(sent.get(name), str)}
    return Problem(
        status if 400 <= status < 600 else 502,
        texts.get("title", "error from another broker"),
        texts.get("detail") or texts.get("title") or f"broker {broker_id} returned status {status}",
        what_to_do=texts.get("what_to_do"),
        members={name: value for name, value in sent.items() if name not in _OWN_MEMBERS},
    )


def _malformed(broker_id: int, status: int, reason: str) -> Problem:
    return Problem(
        502,
        "unexpected response",
        f"broker {broker_id}: its response (status {status}) {reason}",
        what_to_do=f"Check that the admin listener of broker {broker_id} belongs to a compatible kreplica broker.",
    )


def _where(error: ValidationError) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return f"at {steps[:SHOWN_MAX]}:" if steps else "is invalid:"


def _reason(error: ValidationError) -> str:
    text = error.message
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX // 2]} ... {text[-SHOWN_MAX // 2 :]}"
