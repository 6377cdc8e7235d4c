"""Errors of both clients and of requests between brokers; each is either retriable or final."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.model import TopicPartition

__all__ = [
    "AuthenticationFailed",
    "BrokerRefused",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "CommitFailed",
    "ConnectionFailed",
    "ConnectionLost",
    "ConsumerClosed",
    "CorruptBatch",
    "DeliveryFailed",
    "GaveUp",
    "LeaderUnknown",
    "LogTruncated",
    "MalformedResponse",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "ProducerUnusable",
    "RecordTooLarge",
    "RequestTimedOut",
    "TooManyRequests",
    "TransactionFailed",
    "UnsupportedVersion",
]


class ClientError(KreplicaError):
    """Base class of all client errors.

    Unless a subclass specifies otherwise, it is unknown whether the broker executed the request.

    :ivar retriable: True if the same operation may succeed later, on another connection or at another broker.
    """

    retriable = True


class ConnectionFailed(ClientError):
    """The connection could not be opened: it was refused or timed out, or the host is unknown.  Nothing was sent."""


class AuthenticationFailed(ConnectionFailed):
    """The broker rejected the client's credentials or could not prove its own identity."""

    retriable = False


class ConnectionLost(ClientError):
    """The connection was closed by either side before the response arrived."""


class RequestTimedOut(ClientError):
    """The response did not arrive in time; the connection is closed, because responses are in request order."""


class TooManyRequests(ClientError):
    """The connection has the maximum number of requests in flight.  Nothing was sent."""


class MalformedResponse(ClientError):
    """The received bytes are not a response to the request; the connection is closed."""

    retriable = False


class UnsupportedVersion(ClientError):
    """The broker and the client have no version of an API in common.  Nothing was sent."""

    retriable = False


class LeaderUnknown(ClientError):
    """According to the metadata, the partition currently has no leader."""


class CorruptBatch(ClientError):
    """A received batch is damaged; another replica may have an intact copy."""


class RecordTooLarge(ClientError):
    """A record exceeds the maximum size of a request or a response."""

    retriable = False


class GaveUp(ClientError):
    """An operation did not succeed within its timeout; ``__cause__`` is its last error."""


class BrokerRefused(ClientError, KafkaError):
    """A broker responded with an error ``code``.

    :param what: the operation or object, for the error message.
    """

    def __init__(self, code: ErrorCode, what: str, message: str = "") -> None:
        super().__init__(code, f"{what}: {message}" if message else what)
        self.retriable = code.retriable


class OffsetOutOfRange(BrokerRefused):
    """A consumer requested an offset outside the partition's log: deleted already, or beyond the end.

    :param log_start_offset: the log start offset; -1 if the broker did not report it.
    :param high_watermark: end of the committed records; -1 if the broker did not report it.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, log_start_offset: int = -1, high_watermark: int = -1
    ) -> None:
        range_text = "" if log_start_offset < 0 else f", which has offsets {log_start_offset} to {high_watermark}"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {partition}{range_text}")
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


class LogTruncated(ClientError):
    """Records that a consumer has read were lost in a leader election (KIP-320).

    :param offset: the consumer's position.
    :param diverging_offset: the first offset at which the log differs from the consumed records; -1 if unknown.
    """

    retriable = False

    def __init__(self, partition: TopicPartition, offset: int, diverging_offset: int) -> None:
        difference = "" if diverging_offset < 0 else f"; its log differs from offset {diverging_offset} onwards"
        super().__init__(f"{partition} has lost records before offset {offset}, which were already read{difference}")
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset


class ClientClosed(ClientError):
    """The client was closed; the operation did not complete."""

    retriable = False


class ConsumerClosed(ClientError):
    """The consumer is closed."""

    retriable = False


class OutcomeUnknown(ClientError):
    """A record was sent, but no response arrived: the record may have been written.

    Sending the record again may write it twice.  ``__cause__`` is the last error.
    """

    retriable = False


class DeliveryFailed(ClientError):
    """Some records were not written; each ``Delivery`` has its own error.

    :ivar count: number of records.
    :ivar first: the first error.
    """

    def __init__(self, count: int, first: ClientError) -> None:
        super().__init__(f"{count:,} records were not delivered: {first}")
        self.count = count
        self.first = first
        self.retriable = first.retriable


class ProducerUnusable(ClientError):
    """The producer is closed, or another producer took over its transactional id."""

    retriable = False


class TransactionFailed(ClientError):
    """The transaction can only be aborted; the next one may succeed."""

    retriable = False


class CommitFailed(ClientError):
    """The consumer no longer owns the partitions in its group; nothing was committed.

    The new owner starts at the group's last committed offsets, so records processed since then are processed again.
    """

    retriable = False


class RebalanceUnderWay(ClientError):
    """The group is rebalancing; nothing was done, and a retry may succeed when the rebalance is complete."""


class BufferFull(ClientError):
    """The producer's memory is full; the record was not accepted.  Wait for ``room`` and send it again."""


def check(row: Mapping[str, Any], what: str) -> None:
    """Raise the error of a response or of one row in it.

    :raise BrokerRefused: the row has an error code.
    """
    if row["error_code"]:
        raise BrokerRefused(ErrorCode.of(row["error_code"]), what, row.get("error_message") or "")
