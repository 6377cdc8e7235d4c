"""Resource types of Kafka's configuration requests."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError

NAMES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


def unsupported_resource_error(resource_type: int) -> KafkaError:
    """Return the error for a resource type without settings in kreplica."""
    name = NAMES.get(resource_type)
    kind = name if name is not None else f"unknown type {resource_type}"
    text = f"Resources of type {kind} have no settings in kreplica; only TOPIC, BROKER and CLIENT_METRICS do."
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
