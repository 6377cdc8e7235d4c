"""What can go wrong between a client and a cluster; each error says whether another try makes sense.

Both clients, and what brokers ask of each other, have these errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.model import TopicPartition

__all__ = [
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
    "MalformedAnswer",
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
    """The root of all that clients raise.

    Whether a broker acted on what was asked is not known, unless the class says so.

    :ivar retriable: whether the same may go well later, on another connection, or with another broker.
    """

    retriable = True


class ConnectionFailed(ClientError):
    """No connection came about: refused, timed out, or the host's name is not known.  Nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended, from this side or the other, before the answer came."""


class RequestTimedOut(ClientError):
    """The answer did not come in time; the connection is closed, since later answers could not be told apart."""


class TooManyRequests(ClientError):
    """As many requests as may be are under way on this connection already.  Nothing was sent."""


class MalformedAnswer(ClientError):
    """The broker's bytes are not an answer to what was asked; the connection is closed."""

    retriable = False


class UnsupportedVersion(ClientError):
    """Broker and client have no version of a request in common.  Nothing was sent."""

    retriable = False


class LeaderUnknown(ClientError):
    """Nobody leads the partition at the moment, as far as the cluster says."""


class CorruptBatch(ClientError):
    """Records arrived that are not those that were written; another replica may have better ones."""


class RecordTooLarge(ClientError):
    """A record does not fit into what a request or an answer may carry."""

    retriable = False


class GaveUp(ClientError):
    """The time that an operation was given is over; ``__cause__`` is what hindered it last."""


class BrokerRefused(ClientError, KafkaError):
    """A broker's answer is an error; ``code`` is which.

    :param what: was asked, for the text.
    """

    def __init__(self, code: ErrorCode, what: str, message: str = "") -> None:
        super().__init__(code, f"{what}: {message}" if message else what)
        self.retriable = code.retriable


class OffsetOutOfRange(BrokerRefused):
    """A reader asks for an offset that the partition does not have: too old and deleted, or beyond the end.

    :param log_start_offset: the first offset there is; -1 where the broker does not say.
    :param high_watermark: where the committed records end; -1 where the broker does not say.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, log_start_offset: int = -1, high_watermark: int = -1
    ) -> None:
        has = "" if log_start_offset < 0 else f", which has {log_start_offset} to {high_watermark}"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {partition}{has}")
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.high_watermark = high_watermark


class LogTruncated(ClientError):
    """Records that a reader has seen are gone: a leader was elected that did not have them (KIP-320).

    :param offset: where the reader stands.
    :param diverging_offset: from where on the log holds other records than those that were read; -1 where that is not
        known.
    """

    retriable = False

    def __init__(self, partition: TopicPartition, offset: int, diverging_offset: int) -> None:
        where = "" if diverging_offset < 0 else f" from offset {diverging_offset} on"
        super().__init__(f"{partition}, read up to offset {offset}, has lost or other records{where}")
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset


class ClientClosed(ClientError):
    """The cluster's client, or the connections that somebody had of it, were closed; nothing more comes of them."""

    retriable = False


class ConsumerClosed(ClientError):
    """The consumer is closed."""

    retriable = False


class OutcomeUnknown(ClientError):
    """A record may have been written, or not: it was sent, and no answer told.

    Sending it again may write it twice.  ``__cause__`` is what hindered it last.
    """

    retriable = False


class DeliveryFailed(ClientError):
    """Some records were not delivered; each one's ``Delivery`` has its own error.

    :ivar count: of the records.
    :ivar first: the first error.
    """

    def __init__(self, count: int, first: ClientError) -> None:
        super().__init__(f"{count:,} records were not delivered: {first}")
        self.count = count
        self.first = first
        self.retriable = first.retriable


class ProducerUnusable(ClientError):
    """The producer cannot go on: another one took its transactional id, or it is closed."""

    retriable = False


class TransactionFailed(ClientError):
    """The transaction can only be aborted; then the next one may go well."""

    retriable = False


class CommitFailed(ClientError):
    """The consumer is not, or no more, the one that reads these partitions for its group; nothing was committed.

    Whoever reads them now begins where the group committed last: what was processed since will be processed again.
    """

    retriable = False


class RebalanceUnderWay(ClientError):
    """A group is sharing its partitions out anew; nothing was done, and the same may go well when that is over."""


class BufferFull(ClientError):
    """A producer's memory is full of records without an outcome; this one was not taken: wait for ``room``."""


def check(row: Mapping[str, Any], what: str) -> None:
    """Raise the error that an answer, or one part of it, carries.

    :raise BrokerRefused: it has one.
    """
    if row["error_code"]:
        raise BrokerRefused(ErrorCode.of(row["error_code"]), what, row.get("error_message") or "")
