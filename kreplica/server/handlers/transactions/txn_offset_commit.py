"""TxnOffsetCommit (key 28): commits offsets of a group as part of a transaction (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.coordination import ClusterView
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.coordinator import GroupCoordinator
from kreplica.groups.group import NO_GENERATION, UNKNOWN_MEMBER
from kreplica.groups.offset_commits import Committer, commit_in_transaction, is_writable
from kreplica.groups.offsets import Respond
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime.slices import Steps
from kreplica.server.handlers.groups.join_group import client_host
from kreplica.server.handlers.groups.offset_rows import OffsetRows
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.transactions.admission import Admission, Producer
from kreplica.wire.batch_building import BatchBuilder

LOADING_KNOWN_FROM = 2
ABORTABLE_KNOWN_FROM = 4
"""First version in which clients handle TRANSACTION_ABORTABLE."""

ADDS_FROM = 5
"""First version in which the commit itself adds the group's partition to the transaction (KIP-890)."""


class TxnOffsetCommit:
    """Responds when the offsets are committed to the log; they take effect at the end of the transaction.

    The group's partition must be in the transaction, which is verified first: otherwise the group would not receive the
    transaction's marker.

    :param metadata_characters_max: ``offset.metadata.max.bytes``.
    """

    def __init__(
        self,
        groups: GroupCoordinator,
        partitions: Partitions,
        admission: Admission,
        view: ClusterView,
        wall_clock_ms: Callable[[], int],
        metadata_characters_max: int,
    ) -> None:
        self._groups = groups
        self._partitions = partitions
        self._admission = admission
        self._view = view
        self._wall_clock_ms = wall_clock_ms
        self._metadata_characters_max = metadata_characters_max

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._read(request))

    def _read(self, request: Request) -> Steps[None]:
        """Read the offsets in slices, then request the admission of the producer."""
        body = request.body
        rows = OffsetRows(self._view, self._metadata_characters_max, self._wall_clock_ms())
        yield from rows.read(body["topics"])
        try:
            producer = body["producer_id"], body["producer_epoch"]
            prepared = yield from rows.prepare(self._groups.shards, body["group_id"], producer)
        except KafkaError:
            rows.fail(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            request.respond({"throttle_time_ms": 0, "topics": rows.topics})
        else:
            self._admit(request, rows, prepared)

    def _admit(self, request: Request, rows: OffsetRows, prepared: BatchBuilder | None) -> None:
        body = request.body

        def respond(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                rows.fail(_code_for_version(code, request.version))
            request.respond({"throttle_time_ms": 0, "topics": rows.topics})

        if not rows.values:
            respond(ErrorCode.NONE)
            return
        try:
            partition = self._partition_of(body["group_id"])
        except KafkaError as error:
            respond(error.code)
            return

        host = client_host(request)

        def admitted(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._commit(body, host, rows, prepared, respond)
            else:
                respond(code)

        producer = Producer(body["transactional_id"], body["producer_id"], body["producer_epoch"])
        self._admission.admit(producer, [(partition, admitted)], adds=request.version >= ADDS_FROM)

    def _partition_of(self, group_id: str) -> Partition:
        """Return the partition of the group, led by this broker.

        :raise KafkaError: the group ID is invalid, or another broker coordinates the group.
        """
        if not group_id or not is_writable(group_id):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        number = self._groups.shards.shard_of(group_id).log.partition
        partition = self._partitions.get(TopicPartition(CONSUMER_OFFSETS, number))
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def _commit(
        self, body: dict[str, Any], host: str, rows: OffsetRows, prepared: BatchBuilder | None, respond: Respond
    ) -> None:
        """Commit after admission; the group may have moved in the meantime, so it is looked up again."""
        committer = Committer(
            body["group_id"],
            body.get("member_id", UNKNOWN_MEMBER),
            body.get("group_instance_id"),
            body.get("generation_id", NO_GENERATION),
            client_host=host,
        )
        try:
            shard = self._groups.shards.shard_of(committer.group_id)
            producer = body["producer_id"], body["producer_epoch"]
            commit_in_transaction(shard, committer, producer, rows.values, respond, prepared)
        except KafkaError as error:
            respond(error.code)


def _code_for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code that makes a client of that version react correctly."""
    if code is ErrorCode.NETWORK_EXCEPTION or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_FROM):
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the verification failed: the client retries
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_KNOWN_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_KNOWN_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code
