"""JSON with a registered JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from zope.interface import implementer

from kreplica.formats.compiled_schemas import compiled_once
from kreplica.formats.json_format import dump_json, parse_json
from kreplica.formats.schema_header import HEADER_SIZE, has_schema_of_type, header_of, schema_for_encoding, schema_of
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema
from kreplica.patterns import Automaton, PatternError

JSON = "JSON"
_COMPILED = "json-schema"
_TITLE = "json-schema title"
_STATES_MAX = 500
_MESSAGE_LENGTH_MAX = 300


@implementer(IRecordFormat)
class JsonSchemaFormat:
    """JSON, preceded by the ID of its schema; only written values are validated."""

    can_encode = True
    schema_type = JSON

    def __init__(self, context: FormatContext) -> None:
        self._schemas = context.schemas

    def recognizes(self, data: bytes, place: Place) -> bool:
        return has_schema_of_type(self._schemas, data, JSON)

    def decode(self, data: bytes, place: Place) -> Decoded:
        schema = schema_of(self._schemas, data, JSON)
        return Decoded(parse_json(data[HEADER_SIZE:]), schema.describe(place, _title(schema)))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        registered = schema_for_encoding(schema, JSON)
        try:
            error = next(_validator(registered).iter_errors(value), None)
        except FormatError:
            raise
        except Exception as failure:  # such as an unresolvable reference
            raise FormatError(f"schema {registered.schema_id} cannot be used: {_cut(str(failure))}") from None
        if error is not None:
            where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
            raise FormatError(f"value{where}: {_cut(error.message)}")
        return header_of(registered.schema_id) + dump_json(value)


def _title(schema: RegisteredSchema) -> str | None:
    return compiled_once(schema, _TITLE, _parse_title)


def _parse_title(schema: RegisteredSchema) -> str | None:
    try:
        document = json.loads(schema.text)
    except (ValueError, RecursionError):
        return None
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else None


def _validator(schema: RegisteredSchema) -> Any:
    """Return the schema's validator, which is built once; it never loads schemas by URL.

    :raise FormatError: the schema is invalid.
    """
    return compiled_once(schema, _COMPILED, _compile)


def _compile(schema: RegisteredSchema) -> Any:
    import attrs
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable

    try:
        document = json.loads(schema.text)
        references = {name: json.loads(each.text) for name, each in schema.references.items()}
        for each in (document, *references.values()):
            _check_supported(each)
        kind = validator_for(document, default=Draft7Validator)
        kind.check_schema(document)
        specification = _specification(kind)
        resources = [
            (name, Resource.from_contents(each, default_specification=specification))
            for name, each in references.items()
        ]
        kind = extend(kind, {"pattern": _pattern})
        # For a part with ``$schema``, the library would choose another class, without this ``pattern``.
        kind.evolve = attrs.evolve
        return kind(document, registry=Registry().with_resources(resources))
    except (ValueError, SchemaError, Unresolvable, RecursionError) as error:
        raise FormatError(f"schema {schema.schema_id} is not a valid JSON Schema: {_cut(str(error))}") from None


def _check_supported(document: Any) -> None:
    """Check that no part has ``patternProperties``, which the library matches with Python's backtracking expressions.

    Other keywords, such as ``additionalProperties``, evaluate these expressions as well.

    :raise FormatError: a part has it.
    """
    stack = [document]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            if isinstance(each.get("patternProperties"), dict):
                raise FormatError("patternProperties is not supported")
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)


def _specification(kind: Any) -> Any:
    from referencing.jsonschema import DRAFT7, specification_with

    try:
        return specification_with(kind.META_SCHEMA.get("$schema", ""))
    except Exception:
        return DRAFT7


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    """Check ``pattern`` with a matcher that takes time linear in the length of the text."""
    from jsonschema.exceptions import ValidationError

    if not isinstance(instance, str):
        return
    try:
        automaton = Automaton(f"(?s:.*)(?:{pattern})(?s:.*)", _STATES_MAX)
    except PatternError as error:
        raise FormatError(f"the pattern {pattern[:100]!r} of the schema is not supported: {error}") from None
    if not automaton.matches(instance):
        yield ValidationError(f"{instance[:100]!r} does not match {pattern!r}")


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_LENGTH_MAX else f"{text[:_MESSAGE_LENGTH_MAX]} ..."
