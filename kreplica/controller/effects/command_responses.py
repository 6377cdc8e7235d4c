"""What a broker's answer to a command says that the controller has to know: what it refused, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition


class Refusal(NamedTuple):
    """One partition that a broker refused.

    :param topic: its id where the answer has it, else its name.
    """

    topic: str | UUID
    partition: int
    error: ErrorCode


class CommandAnswer(NamedTuple):
    """:param error: of the command as a whole."""

    error: ErrorCode = ErrorCode.NONE
    refusals: tuple[Refusal, ...] = ()

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> CommandAnswer:
        """Of the body of an answer to LeaderAndIsr, UpdateMetadata or StopReplica, in whatever version."""
        groups = [(topic["topic_id"], topic["partition_errors"]) for topic in body.get("topics") or ()]
        groups.append((None, body.get("partition_errors") or ()))
        return cls(
            ErrorCode.of(body["error_code"]),
            tuple(
                Refusal(row.get("topic_name") or topic_id, row["partition_index"], ErrorCode.of(row["error_code"]))
                for topic_id, rows in groups
                for row in rows
                if row["error_code"]
            ),
        )

    def errors(self, what: tuple[TopicPartition, ...], names: Mapping[UUID, str]) -> dict[TopicPartition, ErrorCode]:
        """The errors by partition; one of the whole command counts for each of its partitions.

        :param what: the partitions of the command.
        :param names: of topics by their ids; those of others are left out.
        """
        if self.error is not ErrorCode.NONE:
            return dict.fromkeys(what, self.error)
        found = {}
        for topic, partition, error in self.refusals:
            name = topic if isinstance(topic, str) else names.get(topic)
            if name:
                found[TopicPartition(name, partition)] = error
        return found
