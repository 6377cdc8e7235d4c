"""Names of partition directories in a log directory: ``topic-partition``, and names of deleted ones."""

from __future__ import annotations

import re
import sys

from kreplica.model import TopicPartition

DELETE_SUFFIX = "-delete"
_NAME_SIZE_MAX = 255
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,8})")


def directory_name(topic_partition: TopicPartition) -> str:
    """Return the directory name of a partition's log."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """Return the partition of a directory name, or None if it is not one.

    Topics may contain dashes and dots; the partition follows the last dash.
    """
    match = _PARTITION.fullmatch(name)
    return TopicPartition(sys.intern(match["topic"]), int(match["partition"])) if match else None


def deleted_name(topic_partition: TopicPartition, unique: str) -> str:
    """Return ``topic-partition.UNIQUE-delete``, the name of a directory to delete; a long topic name is truncated."""
    suffix = f"-{topic_partition.partition}.{unique}{DELETE_SUFFIX}"
    return topic_partition.topic[: _NAME_SIZE_MAX - len(suffix)] + suffix
