"""Random messages, generated from the type trees of their schemas."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kreplica.wire.messages import APIS
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from kreplica.wire.schema import Schema
from kreplica.wire.structures import Array, Record
from kreplica.wire.types import Blob, Fixed, Text, Uuid, WireType

NUMBER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
TEXTS = ("", "a", "topic-1", "größe", "日本", "x" * 126, "y" * 127, "z" * 300)


def all_schemas() -> list[Schema]:
    """Return the schemas of all messages."""
    messages = [schema for api in APIS.values() for schema in (api.request, api.response)]
    return [*messages, SUBSCRIPTION, ASSIGNMENT]


def random_value(kind: WireType, rng: random.Random, depth: int = 0) -> Any:
    """Return a random value of a type, with edge cases: null, empty, extreme values, lengths at varint boundaries."""
    if isinstance(kind, Record):
        if kind.nullable and rng.random() < 0.3:
            return None
        value = {field.name: random_value(field.type, rng, depth + 1) for field in kind.fields}
        for field in kind.tagged:
            unchanged = rng.random() < 0.5
            value[field.name] = field.default if unchanged else random_value(field.type, rng, depth + 1)
        return value
    if getattr(kind, "nullable", False) and rng.random() < 0.3:
        return None
    if isinstance(kind, Array):
        most = 3 if depth > 3 or not isinstance(kind.item, Fixed) else 20
        return [random_value(kind.item, rng, depth + 1) for _ in range(rng.randint(0, most))]
    if isinstance(kind, Text):
        return rng.choice(TEXTS)
    if isinstance(kind, Blob):
        return rng.randbytes(rng.choice((0, 1, 60, 126, 127, 128, 5000)))
    if isinstance(kind, Uuid):
        return UUID(int=rng.choice((0, 1, rng.getrandbits(128))))
    assert isinstance(kind, Fixed)
    if kind.code == "?":
        return rng.random() < 0.5
    if kind.code == "d":
        return rng.choice((0.0, -1.5, 1e300))
    half = 1 << (NUMBER_BITS[kind.code] - 1)
    return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))


def random_message(schema: Schema, version: int, rng: random.Random) -> dict[str, Any]:
    """Return a random value of one version of a message."""
    value: dict[str, Any] = random_value(schema.tree(version), rng)
    return value
