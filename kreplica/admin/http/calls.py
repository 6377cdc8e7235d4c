"""Validates an HTTP request against its route and returns a ``Call``, or raises a problem that names the error.

Unknown parameters are rejected, not ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from twisted.web.server import Request

from kreplica.admin.http.api import Call, Parameter, Route, Schema
from kreplica.admin.http.callers import caller_of
from kreplica.admin.http.problems import SHOWN_MAX, Problem, similar_name
from kreplica.runtime.offload import Offload

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

BODY_BYTES_MAX = 2**20

SMALL_BODY_BYTES = 16 * 1024
"""Bodies up to this size are validated in the reactor thread; larger ones in a worker thread."""

ERRORS_MAX = 10

FORWARDED = b"x-kreplica-forwarded"
DRY_RUN = Parameter("dry_run", {"type": "boolean"}, "True to validate the request without writing.", default=False)

_PATH_NAMES = re.compile(r"\{(\w+)(?::path)?\}")
_ETAG = re.compile(r'"([\x21\x23-\x7e]*)"')


class CallReader:
    """Reads the calls of one route."""

    def __init__(self, route: Route, offload: Offload) -> None:
        self._route = route
        self._offload = offload
        self._in_path = path_parameters(route)
        self._in_query = {parameter.name: parameter for parameter in query_parameters(route)}

    @cached_property
    def _body(self) -> Draft202012Validator | None:
        return _validator(self._route.body) if self._route.body is not None else None

    @cached_property
    def _validators(self) -> Mapping[str, Draft202012Validator]:
        return {each.name: _validator(each.schema) for each in (*self._in_path, *self._in_query.values())}

    async def read(self, request: Request, in_path: Mapping[str, str]) -> Call:
        """Validate a request.

        :param in_path: the decoded path parameters.
        :raise Problem: 400, 413 or 415.
        """
        for parameter in self._in_path:
            self._value(parameter, in_path[parameter.name], "path")
        query = self._read_query(request.args)
        return Call(
            path=in_path,
            query=query,
            body=await self._read_body(request),
            dry_run=bool(query.get(DRY_RUN.name)),
            if_match=self._if_match(request),
            authorization=request.getHeader("authorization"),
            forwarded=request.getHeader(FORWARDED) is not None,
            last_event_id=request.getHeader("last-event-id"),
            caller=caller_of(request),
        )

    # --- parameters --------------------------------------------------------------------------------------------------

    def _read_query(self, parameters: Mapping[bytes, Sequence[bytes]]) -> dict[str, Any]:
        values = {name: parameter.default for name, parameter in self._in_query.items()}
        for raw_name, texts in parameters.items():
            name = _text(raw_name, "the query")
            parameter = self._in_query.get(name)
            if parameter is None:
                raise _invalid(f"unknown query parameter {_excerpt(name)}", _nearest(name, self._in_query))
            if len(texts) > 1:
                raise _invalid(f"the parameter {name!r} occurs {len(texts)} times", "Send it once.")
            values[name] = self._value(parameter, _text(texts[0], f"the parameter {name!r}"), "query")
        return values

    def _value(self, parameter: Parameter, text: str, place: str) -> Any:
        value = _convert(text, parameter.schema)
        for error in self._validators[parameter.name].iter_errors(value):
            raise _invalid(f"the {place} parameter {parameter.name!r}: {_message(error)}")
        return value

    def _if_match(self, request: Request) -> str | None:
        text = request.getHeader("if-match")
        if text is None or text.strip() == "*":
            return None
        if 412 not in self._route.problems:
            raise _invalid("If-Match: this resource has no ETag", "Omit the header.")
        match = _ETAG.fullmatch(text.strip())
        if match is None:
            detail = f"If-Match: {_excerpt(text)} is not a single strong ETag"
            raise _invalid(detail, 'Send the value of ETag: "...", or *.')
        return match.group(1)

    # --- body --------------------------------------------------------------------------------------------------------

    async def _read_body(self, request: Request) -> Any:
        assert request.content is not None, "the request body is incomplete"
        content = request.content.read(BODY_BYTES_MAX + 1)
        if len(content) > BODY_BYTES_MAX:
            detail = f"the body is longer than {BODY_BYTES_MAX:,} bytes"
            raise Problem(413, "CONTENT_TOO_LARGE", detail, what_to_do="Send a smaller body.")
        if self._body is None:
            if content:
                raise _invalid(f"{self._route.method} does not accept a body here", "Omit the body.")
            return None
        if not content:
            return self._default_body()
        media_type = (request.getHeader("content-type") or "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Problem(
                415,
                "UNSUPPORTED_MEDIA_TYPE",
                f"the body is of type {_excerpt(media_type)}" if media_type else "the request has no Content-Type",
                what_to_do="Send JSON, with the header Content-Type: application/json.",
            )
        if len(content) <= SMALL_BODY_BYTES:
            return _validate(content, self._body)
        return await self._offload.run(_validate, content, self._body)

    def _default_body(self) -> Any:
        assert self._body is not None
        if not self._body.is_valid({}):
            raise _invalid("the request requires a JSON body", _members(self._body.schema))
        return {}


def path_parameters(route: Route) -> list[Parameter]:
    """Return the parameters in the route's path, in order."""
    described = {parameter.name: parameter for parameter in route.query}
    any_text = {"type": "string", "minLength": 1}
    return [
        described.get(name) or Parameter(name, any_text, f"The {name.replace('_', ' ')}.")
        for name in _PATH_NAMES.findall(route.path)
    ]


def query_parameters(route: Route) -> list[Parameter]:
    """Return the query parameters, with ``dry_run`` for writes."""
    in_path = _PATH_NAMES.findall(route.path)
    parameters = [parameter for parameter in route.query if parameter.name not in in_path]
    return [*parameters, DRY_RUN] if route.writes else parameters


# --- JSON ------------------------------------------------------------------------------------------------------------


def _validator(schema: Schema) -> Draft202012Validator:
    # Imported for the first validation, because it takes 4 MB and most brokers receive no such request.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


def _validate(content: bytes, validator: Draft202012Validator) -> Any:
    """Validate a body.

    :raise Problem: the body is not JSON or does not match the schema.
    """
    body = _parse_json(content)
    errors = list(islice(validator.iter_errors(body), ERRORS_MAX))
    if not errors:
        return body
    rows = [{"where": _where(error), "what": _message(error)} for error in errors]
    first = rows[0]
    raise Problem(
        400,
        "INVALID_REQUEST",
        f"{first['where']}: {first['what']}",
        what_to_do=_advice(errors[0]),
        members={"errors": rows},
    )


def _parse_json(content: bytes) -> Any:
    try:
        body = json.loads(content.decode(), parse_float=_number, parse_constant=_reject_constant)
        if b"\\u" in content:
            json.dumps(body, ensure_ascii=False).encode()  # a lone surrogate is not valid text
        return body
    except RecursionError:
        raise _invalid("the body is nested too deeply") from None
    except ValueError as error:
        raise _invalid(f"the body is not JSON: {str(error)[:SHOWN_MAX]}") from None


def _number(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is out of range")
    # JSON Schema accepts 1.0 as an integer, so handlers get an int.
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _message(error: ValidationError) -> str:
    """Return the message without secrets, and without its middle if it is long."""
    if isinstance(error.schema, Mapping) and error.schema.get("writeOnly"):
        return f"the value is invalid: {error.validator} {error.validator_value}"
    text = error.message
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX // 2]} ... {text[-SHOWN_MAX // 2 :]}"


def _where(error: ValidationError) -> str:
    place = "body"
    for step in error.absolute_path:
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    return place[:SHOWN_MAX]


def _advice(error: ValidationError) -> str | None:
    """Suggest the probable name, or list the allowed members."""
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        members = error.schema.get("properties", {})
        unknown = [name for name in error.instance if name not in members]
        near = [text for name in unknown if (text := similar_name(name, members))]
        return " ".join(near) or _members(error.schema)
    return _members(error.schema) if error.validator == "required" else None


def _members(schema: Schema) -> str | None:
    names = list(schema.get("properties", {}))
    needed = schema.get("required", [])
    if not names:
        return None
    return f"Members: {', '.join(f'{name} (required)' if name in needed else name for name in names)}."


# --- texts -----------------------------------------------------------------------------------------------------------


def _convert(text: str, schema: Schema) -> Any:
    """Convert a text to the type of its schema; return the text if it cannot be converted."""
    kinds = schema.get("type", "string")
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "integer" and re.fullmatch(r"-?[0-9]{1,19}", text):
            return int(text)
        if kind == "boolean" and text in ("true", "false"):
            return text == "true"
        if kind == "number" and re.fullmatch(r"-?[0-9]{1,19}(\.[0-9]{1,19})?", text):
            return float(text)
    return text


def _text(raw: bytes, source: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _invalid(f"{source} is not UTF-8") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    if not names:
        return "Omit it: this route has no query parameters."
    return similar_name(name, names) or f"Known parameters: {', '.join(names)}."


def _excerpt(text: str) -> str:
    return repr(text[:SHOWN_MAX])


def _invalid(detail: str, what_to_do: str | None = None) -> Problem:
    return Problem(400, "INVALID_REQUEST", detail, what_to_do=what_to_do)
