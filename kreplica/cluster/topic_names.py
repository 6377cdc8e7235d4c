"""Valid topic names, and internal topics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kreplica.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
"""Kafka's limit: ``topic-partition`` with up to five digits fits into a file name of 255 bytes."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})


def check_topic_name(name: str) -> None:
    """Raise if a topic name is invalid.

    :raise KafkaError: INVALID_TOPIC_EXCEPTION, with the violated rule.
    """
    if not name:
        raise _invalid("a topic's name cannot be empty")
    if name in (".", ".."):
        raise _invalid(f"a topic cannot be named {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise _invalid(f"a topic's name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}")
    if not _LEGAL.match(name):
        raise _invalid(f"{name!r} has characters other than letters, digits, '.', '_' and '-'")


def is_topic_name(name: str) -> bool:
    """Return True if ``check_topic_name`` accepts the name."""
    return len(name) <= NAME_LENGTH_MAX and _LEGAL.match(name) is not None and name not in (".", "..")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise if another topic differs only in ``.`` and ``_``, because their metric names would be equal.

    :raise KafkaError: INVALID_TOPIC_EXCEPTION, with the existing topic.
    """
    if "." not in name and "_" not in name:
        return
    folded = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == folded:
            raise _invalid(f"{name!r} collides with the topic {other!r}: they differ only in '.' and '_'")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
