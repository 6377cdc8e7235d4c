"""Ids of topics and clusters in Kafka's format."""

from __future__ import annotations

import base64
import random
from uuid import UUID


def random_uuid(rng: random.Random) -> UUID:
    """Return a random UUID of version 4, which cannot be one of Kafka's reserved ids (zero and one)."""
    return UUID(int=rng.getrandbits(128), version=4)


def uuid_text(value: UUID) -> str:
    """Return a UUID in Kafka's text form: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Parse a UUID in Kafka's text form.

    :raise ValueError: the text is not 16 bytes in URL-safe base64.
    """
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
