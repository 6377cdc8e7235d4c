"""Every version of every message, with random values."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from wire_values import all_schemas, random_message, random_value

from kreplica.errors import ProtocolError
from kreplica.wire.building import compile_builder
from kreplica.wire.parsing import compile_parser
from kreplica.wire.schema import Schema
from kreplica.wire.structures import Array, Field, Record
from kreplica.wire.types import Text

SCHEMAS = all_schemas()

every_message = pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)


@every_message
def test_round_trip_of_both_forms(schema: Schema) -> None:
    """The compiled and the interpreted code of each version build the same bytes and parse them to the same values."""
    rng = random.Random(schema.name)
    for version in schema.versions:
        for _ in range(4):
            value = random_message(schema, version, rng)
            data = schema.build(version, value)
            assert data == schema.build_uncompiled(version, value)
            assert schema.parse(version, data) == value
            assert schema.parse(version, memoryview(data)) == value
            assert schema.parse_uncompiled(version, data) == value
            tree = schema.tree(version)  # the compiled code has not fallen back to the interpreted code
            assert compile_parser(tree)(data, 0) == (value, len(data))
            assert b"".join(compile_builder(tree)(value)) == data
            assert b"".join(compile_builder(tree, lenient=False)(value)) == data
            assert schema.parse(version, b"before" + data + b"behind", 6) == value
            assert run_to_end(schema.sliced_parser(version)(b"before" + data, 6)) == value
            assert b"".join(run_to_end(schema.sliced_builder(version)(value, b"head"))) == b"head" + data


def run_to_end(steps: Generator[None, None, Any]) -> Any:
    """Run a sliced operation to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@every_message
def test_every_truncation_is_refused(schema: Schema) -> None:
    """The error starts with the message's name."""
    rng = random.Random(schema.name)
    for version in schema.versions:
        data = schema.build(version, random_message(schema, version, rng))
        cuts = range(len(data)) if len(data) < 200 else sorted(rng.sample(range(len(data)), 60))
        for cut in cuts:
            with pytest.raises(ProtocolError) as caught:
                schema.parse(version, data[:cut])
            assert caught.value.path.startswith(f"{schema.name}.")
            with pytest.raises(ProtocolError):
                run_to_end(schema.sliced_parser(version)(data[:cut], 0))


@every_message
def test_missing_fields_have_their_defaults(schema: Schema) -> None:
    """An empty dict builds a message with all defaults, compiled or interpreted."""
    for version in schema.versions:
        data = schema.build(version, {})
        assert data == schema.build_uncompiled(version, {})
        assert schema.parse(version, data) == schema.tree(version).zero


@every_message
def test_fields_of_other_versions_are_ignored(schema: Schema) -> None:
    """A caller may set all fields; a version's message contains only its own fields."""
    names = {name for version in schema.versions for name in schema.tree(version).zero}
    for version in schema.versions:
        known = schema.tree(version).zero
        assert schema.build(version, {**dict.fromkeys(names, object()), **known}) == schema.build(version, known)


@every_message
def test_compiler_of_construct_accepts_the_types(schema: Schema) -> None:
    """``compile()`` of construct gives the same results."""
    version = schema.versions[-1]
    value = random_message(schema, version, random.Random(7))
    compiled = schema.tree(version).compile()
    data = schema.build(version, value)
    assert compiled.build(value) == data
    assert compiled.parse(data) == value


FLEXIBLE = [schema for schema in SCHEMAS if schema.is_flexible(schema.versions[-1])]


def with_future_tags(kind: Any) -> Any:
    """Return the type of a hypothetical later version, in which every record has two more tags."""
    if isinstance(kind, Array):
        return Array(with_future_tags(kind.item), kind.compact, kind.nullable)
    if not isinstance(kind, Record):
        return kind
    fields = [Field(f.name, with_future_tags(f.type), f.default, f.tag) for f in (*kind.fields, *kind.tagged)]
    future = [Field("future", Text(True, False), "", 99), Field("far_future", Text(True, True), None, 200)]
    return Record(fields + future, flexible=True, nullable=kind.nullable, title=kind.title)


def without_future(value: Any) -> Any:
    """Return the value without the tags of the later version."""
    if isinstance(value, list):
        return [without_future(item) for item in value]
    if isinstance(value, dict):
        return {name: without_future(item) for name, item in value.items() if not name.endswith("future")}
    return value


@pytest.mark.parametrize("schema", FLEXIBLE, ids=lambda schema: schema.name)
def test_unknown_tags_are_skipped(schema: Schema) -> None:
    """A newer client may send unknown tags at any level (KIP-482)."""
    version = schema.versions[-1]
    rng = random.Random(schema.name)
    later = with_future_tags(schema.tree(version))
    for _ in range(4):
        value = random_value(later, rng)
        data = later.build(value)
        assert schema.parse(version, data) == without_future(value)
        assert schema.parse_uncompiled(version, data) == without_future(value)
