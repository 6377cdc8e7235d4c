"""What a stream's checkpoint says: up to where each micro-batch goes (Spark's ``offsets/<number>``)."""

from __future__ import annotations

import json

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import Store
from kreplica.spark.source.positions import from_json

_VERSION = "v1"


class UnknownCheckpoint(KreplicaError):
    """A checkpoint is not as this release knows them."""


def batch_numbers(checkpoint: str, store: Store) -> list[int]:
    """The micro-batches that were begun and are still noted: the last hundred or so."""
    return sorted(int(name) for name in store.names(f"{checkpoint}/offsets") if name.isdecimal())


def batch_ends(checkpoint: str, number: int, store: Store) -> dict[TopicPartition, int] | None:
    """Where a micro-batch ends in each partition; None: it is not noted (any more).

    :raise UnknownCheckpoint: its note cannot be read.
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
        raise UnknownCheckpoint(f"{path} is not what a stream of one topic source has there: {error}") from error
