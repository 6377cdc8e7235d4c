"""Which names a topic may have, and which topics are Kafka's own."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kreplica.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
"""So that ``topic-partition.uuid-delete`` fits into a file name of 255 bytes."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


def check_topic_name(name: str) -> None:
    """:raise KafkaError: INVALID_TOPIC_EXCEPTION, saying what a name may be."""
    if not name:
        raise _invalid("a topic's name cannot be empty")
    if name in (".", ".."):
        raise _invalid(f"a topic cannot be named {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(f"a topic's name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}")
    if not _LEGAL.match(name):
        raise _invalid(f"{name!r} has characters other than letters, digits, '.', '_' and '-'")


def is_topic_name(name: str) -> bool:
    """Return whether ``check_topic_name`` accepts it."""
    return len(name) <= NAME_LENGTH_MAX and _LEGAL.match(name) is not None and name not in (".", "..")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Names that differ only in ``.`` and ``_`` would share the names of their metrics.

    :raise KafkaError: INVALID_TOPIC_EXCEPTION, naming the topic that is there.
    """
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == folded:
            raise _invalid(f"{name!r} collides with the topic {other!r}: they differ only in '.' and '_'")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
