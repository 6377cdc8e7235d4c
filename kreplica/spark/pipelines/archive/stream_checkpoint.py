"""Reads the end offsets of each micro-batch from a stream's checkpoint (Spark's ``offsets/<number>``)."""

from __future__ import annotations

import json

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import Store
from kreplica.spark.source.positions import from_json

_VERSION = "v1"


class UnknownCheckpoint(KreplicaError):
    """The checkpoint has an unknown format."""


def batch_numbers(checkpoint: str, store: Store) -> list[int]:
    """Return the numbers of the micro-batches in the checkpoint, about the last hundred."""
    return sorted(int(name) for name in store.names(f"{checkpoint}/offsets") if name.isdecimal())


def batch_ends(checkpoint: str, number: int, store: Store) -> dict[TopicPartition, int] | None:
    """Return the end offsets of a micro-batch; None if the checkpoint does not contain it.

    :raise UnknownCheckpoint: the entry cannot be parsed.
    """
    path = f"{checkpoint}/offsets/{number}"
    text = store.read(path)
    if text is None:
        return None
    try:
        version, _, offsets = text.strip().split("\n")
        if version != _VERSION:
            raise ValueError(f"its version is {version!r}")
        return from_json(json.loads(offsets))
    except (ValueError, AttributeError) as error:
        raise UnknownCheckpoint(f"{path} is not an offsets file of a stream with one topic source: {error}") from error
