"""Parsed responses of brokers to commands: errors by partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition


class PartitionError(NamedTuple):
    """The error for one partition in a response.

    :param topic: topic id if the response contains it, otherwise the name.
    """

    topic: str | UUID
    partition: int
    error: ErrorCode


class CommandResponse(NamedTuple):
    """Response to one command.

    :param error: error of the whole command.
    """

    error: ErrorCode = ErrorCode.NONE
    partition_errors: tuple[PartitionError, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> CommandResponse:
        """Parse the response body of LeaderAndIsr, UpdateMetadata or StopReplica in any version."""
        groups = [(topic["topic_id"], topic["partition_errors"]) for topic in body.get("topics") or ()]
        groups.append((None, body.get("partition_errors") or ()))
        return cls(
            ErrorCode.of(body["error_code"]),
            tuple(
                PartitionError(
                    row.get("topic_name") or topic_id, row["partition_index"], ErrorCode.of(row["error_code"])
                )
                for topic_id, rows in groups
                for row in rows
                if row["error_code"]
            ),
        )

    def errors(
        self, partitions: tuple[TopicPartition, ...], names: Mapping[UUID, str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the errors by partition; an error of the whole command applies to each partition.

        :param partitions: the partitions of the command.
        :param names: topic names by id; errors of unknown ids are omitted.
        """
        if self.error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, self.error)
        errors = {}
        for topic, partition, error in self.partition_errors:
            name = topic if isinstance(topic, str) else names.get(topic)
            if name:
                errors[TopicPartition(name, partition)] = error
        return errors
