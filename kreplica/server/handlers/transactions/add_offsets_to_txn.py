"""AddOffsetsToTxn (key 25): adds the offsets of a group to a producer's transaction."""

from __future__ import annotations

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.coordination import ClusterView, partition_of
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.server.handlers.transactions.transaction_codes import fenced_code
from kreplica.server.metadata.internal_topics import InternalTopics
from kreplica.server.protocol.request import Request
from kreplica.transactions import Identity, TransactionCoordinator

PRODUCER_FENCED_VERSION_MIN = 2


class AddOffsetsToTxn:
    """Adds the partition that stores the group's offsets to the transaction."""

    def __init__(self, coordinator: TransactionCoordinator, view: ClusterView, internal_topics: InternalTopics) -> None:
        self._coordinator = coordinator
        self._view = view
        self._internal_topics = internal_topics

    def __call__(self, request: Request) -> None:
        def respond(code: ErrorCode) -> None:
            request.respond({"error_code": fenced_code(code, is_known=request.version >= PRODUCER_FENCED_VERSION_MIN)})

        body = request.body
        count = self._view.partition_count(CONSUMER_OFFSETS)
        if count is None:
            self._internal_topics.ensure(CONSUMER_OFFSETS)
            respond(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        key = TopicPartition(CONSUMER_OFFSETS, partition_of(body["group_id"], count))
        claimed = Identity(body["producer_id"], body["producer_epoch"])
        self._coordinator.add(body["transactional_id"], claimed, [key], respond)
