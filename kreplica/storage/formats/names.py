"""The names of directories in a log directory: ``topic-partition``, and what Kafka adds to some of them."""

from __future__ import annotations

import re

from kreplica.model import TopicPartition

DELETE_SUFFIX = "-delete"
_NAME_SIZE_MAX = 255
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,8})")


def directory_name(topic_partition: TopicPartition) -> str:
    """Where a partition's log is."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """The partition of a directory; None where it is none (to be deleted, moved in by Kafka, or somebody else's).

    Topics may have dashes and dots; the partition is what follows the last dash.
    """
    match = _PARTITION.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """The name of a directory that is about to be deleted: ``topic-partition.UNIQUE-delete``, cut to what fits."""
    suffix = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
    return topic_partition.topic[: _NAME_SIZE_MAX - len(suffix)] + suffix
