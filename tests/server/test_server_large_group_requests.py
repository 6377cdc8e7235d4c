"""Large requests about groups and partitions are handled in slices; a commit is still applied atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from test_server_large_requests import Broker, Client
from twisted.internet.defer import succeed
from twisted.internet.task import Clock

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.coordinator import NOT_FOUND, ListedGroup
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.handlers.groups.consumer_group_describe import ConsumerGroupDescribe
from kreplica.server.handlers.groups.delete_groups import DeleteGroups
from kreplica.server.handlers.groups.describe_groups import STEP_GROUPS, DescribeGroups
from kreplica.server.handlers.groups.list_groups import ListGroups
from kreplica.server.handlers.groups.offset_commit import OffsetCommit
from kreplica.server.handlers.groups.offset_delete import OffsetDelete
from kreplica.server.handlers.topics.alter_partition_reassignments import AlterPartitionReassignments
from kreplica.server.handlers.transactions.add_partitions_to_txn import AddPartitionsToTxn
from kreplica.server.handlers.transactions.txn_offset_commit import TxnOffsetCommit
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Handler
from kreplica.wire import messages
from kreplica.wire.messages import Api

ROWS = 20_000
STEPS_MAX = 64
Answer = Callable[[ErrorCode], None]


class Coordinator:
    """Coordinator of the group ``g``, which has no members; it counts the calls.

    :ivar calls: number of calls so far.
    :ivar subscribed: topics to which the group is subscribed.
    :ivar waiting: pending deletions.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.commits: list[Any] = []
        self.prepared: list[object] = []
        self.producers: list[object] = []
        self.shards = self
        self.log = self
        self.partition = 0
        self.subscribed: set[str] = set()
        self.waiting: list[Answer] | None = None
        self.offsets = self
        self.view = self

    def describe(self, group_id: str) -> Any:
        self.calls += 1
        return NOT_FOUND

    def delete(self, group_id: str, answer: Answer) -> None:
        self.calls += 1
        if self.waiting is None:
            answer(ErrorCode.GROUP_ID_NOT_FOUND)
        else:
            self.waiting.append(answer)

    async def list_groups(self, states: object, types: object) -> tuple[ErrorCode, list[ListedGroup]]:
        return ErrorCode.NONE, [ListedGroup(f"g{number}", "consumer", "Empty", "classic") for number in range(ROWS)]

    # --- the only shard and group ------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> Coordinator:
        return self

    def group(self, group_id: str) -> Coordinator:
        return self

    def check_commit(self, *arguments: object, **more: object) -> None:
        """Allow every commit."""

    def check_offset_delete(self) -> None:
        """Allow every deletion."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def remove_if_unused(self, group_id: str) -> None:
        """Keep the group."""

    def partition_count(self, topic: str) -> int:
        return ROWS

    def prepare(self, group_id: str, values: Any, now_ms: int, producer: object) -> Iterator[None]:
        """Encode 32 offsets in each step, as ``Offsets.prepare`` does."""
        self.producers.append(producer)
        for _, rows in values:
            for _ in range(0, len(rows), 32):
                self.calls += 1
                yield
        return f"batch of {sum(len(rows) for _, rows in values)} offsets"

    def commit(self, group_id: str, values: Any, answer: Answer, prepared: object, address: str) -> None:
        self.commits.append(values)
        self.prepared.append(prepared)
        answer(ErrorCode.NONE)

    def commit_in_transaction(
        self, group_id: str, values: Any, producer: object, answer: Answer, prepared: object, address: str
    ) -> None:
        self.producers.append(producer)
        self.commit(group_id, values, answer, prepared, address)

    def tombstones(self, group_id: str, wanted: Callable[[str, int], bool]) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for topic in ("t", "u") for index in range(ROWS) if wanted(topic, index)]

    def remove(self, records: list[TopicPartition], answer: Answer) -> None:
        self.commits.append(records)
        answer(ErrorCode.NONE)


def broker_with_handler(api: Api, handler: Handler) -> tuple[Broker, Client]:
    broker = Broker()
    broker.dispatch.table[api.key] = HandlerEntry.of(api, handler)
    return broker, broker.connect()


def answer_of(client: Client, api: Api, version: int) -> dict[str, Any]:
    (frame,) = client.transport.frames()
    return parse_answer(frame, api.key, version)[1]


NAMES = [f"g{number}" for number in range(ROWS)]


@pytest.mark.parametrize(
    ("api", "handler", "body", "rows"),
    [
        (messages.DESCRIBE_GROUPS, lambda c: DescribeGroups(c, AuthorizedOperations(None)), "groups", "groups"),
        (
            messages.CONSUMER_GROUP_DESCRIBE,
            lambda c: ConsumerGroupDescribe(c, AuthorizedOperations(None)),
            "group_ids",
            "groups",
        ),
        (messages.DELETE_GROUPS, DeleteGroups, "groups_names", "results"),
    ],
    ids=["DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups"],
)
def test_many_groups_are_handled_in_slices(api: Api, handler: Any, body: str, rows: str) -> None:
    """Each iteration handles a bounded number of groups; the response contains them in order."""
    coordinator = Coordinator()
    if api is messages.CONSUMER_GROUP_DESCRIBE:

        def describe(group_id: str) -> Any:
            coordinator.calls += 1
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)

        coordinator.describe = describe  # type: ignore[method-assign]
    broker, client = broker_with_handler(api, handler(coordinator))
    version = api.versions[0]
    more = {"include_authorized_operations": False} if body == "group_ids" else {}
    client.send(request_frame(api, version, 1, {body: NAMES, **more}))
    before = 0
    while broker.clock.getDelayedCalls():
        broker.clock.iterate()
        assert coordinator.calls - before <= (STEPS_MAX + 8) * STEP_GROUPS
        before = coordinator.calls
    answered = answer_of(client, api, version)[rows]
    assert [row["group_id"] for row in answered] == NAMES


def test_pending_group_deletions_are_answered_together() -> None:
    """The last deletion to finish sends the response, even if others finish before all are started."""
    coordinator = Coordinator()
    coordinator.waiting = []
    broker, client = broker_with_handler(messages.DELETE_GROUPS, DeleteGroups(coordinator))  # type: ignore[arg-type]
    client.send(request_frame(messages.DELETE_GROUPS, 0, 1, {"groups_names": NAMES}))
    broker.clock.iterate()
    early = len(coordinator.waiting)
    assert early < ROWS
    for answer in coordinator.waiting[:early]:
        answer(ErrorCode.NONE)
    broker.iterations()
    assert client.answers() == 0
    for answer in coordinator.waiting[early:]:
        answer(ErrorCode.NON_EMPTY_GROUP)
    broker.iterations()
    codes = [row["error_code"] for row in answer_of(client, messages.DELETE_GROUPS, 0)["results"]]
    assert codes.count(0) == early
    assert codes.count(int(ErrorCode.NON_EMPTY_GROUP)) == ROWS - early


def test_many_groups_are_listed_in_slices() -> None:
    """The response is complete after many iterations."""
    broker, client = broker_with_handler(messages.LIST_GROUPS, ListGroups(Coordinator()))  # type: ignore[arg-type]
    client.send(request_frame(messages.LIST_GROUPS, 4, 1, {"states_filter": []}))
    assert client.answers() == 0
    assert broker.iterations() > 3
    assert [row["group_id"] for row in answer_of(client, messages.LIST_GROUPS, 4)["groups"]] == NAMES


def commit_frame(correlation_id: int, count: int) -> bytes:
    offsets = [
        {"partition_index": number, "committed_offset": number, "committed_metadata": ""} for number in range(count)
    ]
    body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    return request_frame(
        messages.OFFSET_COMMIT, 2, correlation_id, {**body, "topics": [{"name": "t", "partitions": offsets}]}
    )


def test_large_commit_is_parsed_in_slices_and_applied_atomically() -> None:
    """The connection is not read meanwhile; a commit on another connection is applied in between."""
    coordinator = Coordinator()
    handler = OffsetCommit(coordinator, coordinator, lambda: 0, 4096)  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.OFFSET_COMMIT, handler)
    other = broker.connect()
    client.send(commit_frame(1, ROWS))
    assert not client.transport.is_reading
    broker.clock.iterate()
    other.send(commit_frame(2, 2))
    assert not client.transport.is_reading
    broker.iterations()
    assert client.transport.is_reading
    assert [sum(len(rows) for _, rows in values) for values in coordinator.commits] == [2, ROWS]
    assert coordinator.prepared == [None, f"batch of {ROWS} offsets"]
    (topic,) = answer_of(client, messages.OFFSET_COMMIT, 2)["topics"]
    assert [row["partition_index"] for row in topic["partitions"]] == list(range(ROWS))


def test_batch_of_a_large_commit_is_built_in_slices() -> None:
    """Each iteration encodes a bounded number of offsets."""
    coordinator = Coordinator()
    handler = OffsetCommit(coordinator, coordinator, lambda: 0, 4096)  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.OFFSET_COMMIT, handler)
    client.send(commit_frame(1, ROWS))
    before = 0
    while broker.clock.getDelayedCalls():
        broker.clock.iterate()
        assert coordinator.calls - before <= STEPS_MAX + 8
        before = coordinator.calls
    assert coordinator.calls == ROWS // 32
    assert client.answers() == 1


@pytest.mark.parametrize(("count", "prepared"), [(2, None), (ROWS, f"batch of {ROWS} offsets")])
def test_large_commit_of_a_transaction_is_built_in_slices(count: int, prepared: str | None) -> None:
    """TxnOffsetCommit encodes a bounded number of offsets per iteration, for the transaction's producer."""
    coordinator = Coordinator()

    class Admission:
        """Admits the producer after the batch is built."""

        def admit(self, producer: object, claims: list[tuple[object, Answer]], *, adds: bool) -> None:
            ((partition, admitted),) = claims
            assert partition == "offsets partition"
            assert len(coordinator.producers) == (prepared is not None)
            admitted(ErrorCode.NONE)

    partitions = {TopicPartition("__consumer_offsets", 0): "offsets partition"}
    handler = TxnOffsetCommit(coordinator, partitions, Admission(), coordinator, lambda: 0, 4096)  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.TXN_OFFSET_COMMIT, handler)
    rows = [{"partition_index": n, "committed_offset": n, "committed_metadata": ""} for n in range(count)]
    body = {"transactional_id": "x", "group_id": "g", "producer_id": 7, "producer_epoch": 3}
    topics = [{"name": "t", "partitions": rows}]
    client.send(request_frame(messages.TXN_OFFSET_COMMIT, 0, 1, {**body, "topics": topics}))
    before = 0
    while broker.clock.getDelayedCalls():
        broker.clock.iterate()
        assert coordinator.calls - before <= STEPS_MAX + 8
        before = coordinator.calls
    assert coordinator.prepared == [prepared]
    assert set(coordinator.producers) == {(7, 3)}
    (topic,) = answer_of(client, messages.TXN_OFFSET_COMMIT, 0)["topics"]
    assert [row["error_code"] for row in topic["partitions"]] == [0] * count


def test_commit_of_a_closed_connection_is_not_started() -> None:
    """The connection closes while the rows are parsed, and none of them is committed."""
    coordinator = Coordinator()
    handler = OffsetCommit(coordinator, coordinator, lambda: 0, 4096)  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.OFFSET_COMMIT, handler)
    client.send(commit_frame(1, ROWS))
    broker.clock.iterate()
    client.connection.lost()
    broker.iterations()
    assert coordinator.commits == []


def test_offsets_of_a_topic_subscribed_during_the_request_are_kept() -> None:
    """OffsetDelete for many partitions checks the subscription again after parsing."""
    coordinator = Coordinator()
    handler = OffsetDelete(coordinator, coordinator)  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.OFFSET_DELETE, handler)
    rows = [{"partition_index": number} for number in range(ROWS)]
    topics = [{"name": name, "partitions": rows} for name in ("t", "u")]
    client.send(request_frame(messages.OFFSET_DELETE, 0, 1, {"group_id": "g", "topics": topics}))
    broker.clock.iterate()
    assert not coordinator.commits
    coordinator.subscribed.add("t")
    broker.iterations()
    (removed,) = coordinator.commits
    assert {record.topic for record in removed} == {"u"}
    answered = answer_of(client, messages.OFFSET_DELETE, 0)["topics"]
    codes = {topic["name"]: {row["error_code"] for row in topic["partitions"]} for topic in answered}
    assert codes == {"t": {int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)}, "u": {0}}


def test_partitions_are_added_to_a_transaction_atomically() -> None:
    """AddPartitionsToTxn parses many partitions and builds its response in slices, but adds them in one step."""

    class Transactions:
        """Accepts all partitions."""

        def __init__(self) -> None:
            self.added: list[list[TopicPartition]] = []

        def add(self, transactional_id: str, claimed: object, keys: list[TopicPartition], answer: Answer) -> None:
            self.added.append(keys)
            answer(ErrorCode.NONE)

    transactions = Transactions()
    handler = AddPartitionsToTxn(transactions, Coordinator())  # type: ignore[arg-type]
    broker, client = broker_with_handler(messages.ADD_PARTITIONS_TO_TXN, handler)
    topics = [{"name": "t", "partitions": list(range(ROWS))}]
    names = ("transactional_id", "producer_id", "producer_epoch", "topics")
    body = {f"v3_and_below_{name}": value for name, value in zip(names, ("x", 1, 0, topics), strict=True)}
    client.send(request_frame(messages.ADD_PARTITIONS_TO_TXN, 1, 1, body))
    assert client.answers() == 0
    assert broker.iterations() > 5
    assert [len(keys) for keys in transactions.added] == [ROWS]
    (topic,) = answer_of(client, messages.ADD_PARTITIONS_TO_TXN, 1)["results_by_topic_v3_and_below"]
    assert [row["partition_index"] for row in topic["results_by_partition"]] == list(range(ROWS))


def test_many_reassignments_are_requested_at_once() -> None:
    """AlterPartitionReassignments is parsed and its response is built in slices; the controller is called once."""
    asked: list[Mapping[TopicPartition, tuple[int, ...] | None]] = []

    def ask(targets: Mapping[TopicPartition, tuple[int, ...] | None]) -> Any:
        asked.append(targets)
        return succeed(dict.fromkeys(targets))

    cache = MetadataCache(Clock())
    partitions = {number: PartitionMetadata(number, 1, 0, [1], [1], []) for number in range(ROWS)}
    cache.topics["t"] = TopicMetadata("t", ZERO_UUID, partitions)
    broker, client = broker_with_handler(
        messages.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignments(ask, cache)
    )
    rows = [{"partition_index": number, "replicas": [1, 2]} for number in range(ROWS)]
    body = {"timeout_ms": 1000, "topics": [{"name": "t", "partitions": rows}]}
    client.send(request_frame(messages.ALTER_PARTITION_REASSIGNMENTS, 0, 1, body))
    assert client.answers() == 0
    assert broker.iterations() > 5
    (targets,) = asked
    assert targets == dict.fromkeys((TopicPartition("t", number) for number in range(ROWS)), (1, 2))
    (topic,) = answer_of(client, messages.ALTER_PARTITION_REASSIGNMENTS, 0)["responses"]
    assert [row["partition_index"] for row in topic["partitions"]] == list(range(ROWS))
