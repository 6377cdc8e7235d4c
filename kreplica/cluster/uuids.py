"""The ids of topics and clusters, and how Kafka writes them."""

from __future__ import annotations

import base64
import random
from uuid import UUID


def random_uuid(rng: random.Random) -> UUID:
    """A new id for a topic or a cluster: version 4, so none of those that Kafka keeps for itself (zero and one)."""
    return UUID(int=rng.getrandbits(128), version=4)


def uuid_text(value: UUID) -> str:
    """Kafka's text of a uuid: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """:raise ValueError: where the text is not 16 bytes of URL-safe base64."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
