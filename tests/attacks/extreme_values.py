"""Valid messages with extreme values: large arrays, long names, largest and smallest numbers."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from kreplica.wire.schema import Schema
from kreplica.wire.structures import Array, Record
from kreplica.wire.types import Blob, Fixed, Text, Uuid, WireType

ELEMENTS_MAX = 100_000
BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}


def extreme_message(schema: Schema, version: int, random: Random) -> dict[str, Any]:
    """Return a body of one message at one version, with at most about ``ELEMENTS_MAX`` elements in total."""
    budget = [random.choice([10, 1000, ELEMENTS_MAX])]
    value: dict[str, Any] = _value(schema.tree(version), random, budget)
    return value


def _value(kind: WireType, random: Random, budget: list[int]) -> Any:
    if isinstance(kind, Record):
        if kind.nullable and random.random() < 0.1:
            return None
        return {field.name: _value(field.type, random, budget) for field in (*kind.fields, *kind.tagged)}
    if getattr(kind, "nullable", False) and random.random() < 0.1:
        return None
    if isinstance(kind, Array):
        count = random.choice([0, 1, min(3, budget[0]), budget[0]])
        budget[0] -= count
        return [_value(kind.item, random, budget) for _ in range(count)]
    if isinstance(kind, Text):
        return random.choice(["", "a", "t", "\x1b[2J", "x" * 249, "y" * 5000, f"{random.getrandbits(40):x}"])
    if isinstance(kind, Blob):
        return random.randbytes(random.choice([0, 1, 61, 1000, 100_000 if budget[0] > 100 else 10]))
    if isinstance(kind, Uuid):
        return UUID(int=random.choice([0, 1, 2**128 - 1, random.getrandbits(128)]))
    assert isinstance(kind, Fixed)
    if kind.code == "?":
        return random.random() < 0.5
    if kind.code == "d":
        return random.choice([0.0, -1.0, 1e308, float("inf"), float("nan")])
    if kind.code.isupper():
        return random.choice([0, 1, (1 << BITS[kind.code]) - 1])
    half = 1 << (BITS[kind.code] - 1)
    return random.choice([0, 1, -1, half - 1, -half])
