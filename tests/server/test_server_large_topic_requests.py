"""CreateTopics, DeleteTopics and ElectLeaders for many topics are handled in slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from server_scene import parse_answer, request_frame
from test_server_large_requests import Broker, Client
from twisted.internet.defer import Deferred, succeed

from kreplica.cluster.new_topics import NewTopic
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.server.handlers.topics.create_topics import CONFIGS_MAX, STEP_ROWS, CreateTopics, count_rows
from kreplica.server.handlers.topics.delete_topics import TOPICS_AT_ONCE, DeleteTopics
from kreplica.server.handlers.topics.elect_leaders import ElectLeaders
from kreplica.server.handlers.topics.topic_admin import NEW_PARTITIONS_MAX
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.request import Handler
from kreplica.wire import messages
from kreplica.wire.messages import Api

ROWS = 20_000
NAMES = [f"t{number}" for number in range(ROWS)]


def broker_with_handler(api: Api, handler: Any) -> tuple[Broker, Client]:
    broker = Broker()
    made: Handler = handler(broker)
    broker.dispatch.table[api.key] = HandlerEntry.of(api, made)
    return broker, broker.connect()


def answer_of(client: Client, api: Api, version: int) -> dict[str, Any]:
    (frame,) = client.transport.frames()
    return parse_answer(frame, api.key, version)[1]


class Topics:
    """Topics in ZooKeeper, requests for their deletion, and the Deferreds that wait for deletions."""

    def __init__(self, known: list[str]) -> None:
        self.known = set(known)
        self.requested: list[str] = []
        self.answers: list[Deferred[None]] | None = None
        self.waiting: list[Deferred[bool]] = []

    async def request_deletion(self, name: str) -> None:
        if name not in self.known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.requested.append(name)
        if self.answers is not None:
            answer: Deferred[None] = Deferred()
            self.answers.append(answer)
            await answer

    async def until_deleted(self, name: str, timeout_s: float) -> bool:
        waiting: Deferred[bool] = Deferred()
        self.waiting.append(waiting)
        return await waiting


def broker_for_deletions(topics: Topics) -> tuple[Broker, Client]:
    def handler(broker: Broker) -> DeleteTopics:
        return DeleteTopics(topics, MetadataCache(broker.clock), lambda: True, enabled=True)  # type: ignore[arg-type]

    return broker_with_handler(messages.DELETE_TOPICS, handler)


@pytest.mark.parametrize("version", [1, 6])
def test_many_topics_are_deleted_in_slices(version: int) -> None:
    """Names are counted, requested and answered over many iterations; a name that occurs twice is rejected."""
    broker, client = broker_for_deletions(Topics([]))
    twice = [NAMES[0]] if version >= 6 else []
    body = {"topics": [{"name": name} for name in (*NAMES, *twice)], "topic_names": NAMES, "timeout_ms": 1000}
    client.send(request_frame(messages.DELETE_TOPICS, version, 1, body))
    assert client.answers() == 0
    assert broker.iterations() > 10
    answered = answer_of(client, messages.DELETE_TOPICS, version)["responses"]
    assert [row["name"] for row in answered] == [*NAMES, *twice]
    codes = [row["error_code"] for row in answered]
    if twice:
        assert codes[0] == codes[-1] == int(ErrorCode.INVALID_REQUEST)
    assert set(codes[1:-1]) == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}


def test_deletions_of_one_request_at_the_same_time_are_bounded() -> None:
    """A bounded number waits for ZooKeeper, and all deletions are requested before any is awaited."""
    names = NAMES[: 2 * TOPICS_AT_ONCE + 1]
    topics = Topics(names)
    topics.answers = []
    broker, client = broker_for_deletions(topics)
    body = {"topics": [{"name": name} for name in names], "timeout_ms": 1000}
    client.send(request_frame(messages.DELETE_TOPICS, 6, 1, body))
    for expected in (TOPICS_AT_ONCE, 2 * TOPICS_AT_ONCE, len(names)):
        broker.iterations()
        assert len(topics.requested) == expected
        assert topics.waiting == []
        answers, topics.answers = topics.answers, []
        for answer in answers:
            answer.callback(None)
    for expected in (TOPICS_AT_ONCE, TOPICS_AT_ONCE, 1):
        broker.iterations()
        waiting, topics.waiting = topics.waiting, []
        assert len(waiting) == expected
        for each in waiting[1:]:
            each.callback(True)
        waiting[0].callback(False)
    broker.iterations()
    answered = answer_of(client, messages.DELETE_TOPICS, 6)["responses"]
    assert [row["name"] for row in answered] == names
    late = [row["name"] for row in answered if row["error_code"] == int(ErrorCode.REQUEST_TIMED_OUT)]
    assert late == [names[0], names[TOPICS_AT_ONCE], names[-1]]


class Creation:
    """Rejects every topic, and records the names."""

    def __init__(self) -> None:
        self.planned: list[str] = []

    def plan(self, topic: NewTopic) -> None:
        self.planned.append(topic.name)
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)


def broker_for_creations(topics: Creation) -> tuple[Broker, Client]:
    def handler(broker: Broker) -> CreateTopics:
        return CreateTopics(topics, MetadataCache(broker.clock), None, lambda: True)  # type: ignore[arg-type]

    return broker_with_handler(messages.CREATE_TOPICS, handler)


def new_topics_frame(rows: list[dict[str, Any]]) -> bytes:
    default = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    body = {"topics": [{**default, **row} for row in rows], "timeout_ms": 1000, "validate_only": False}
    return request_frame(messages.CREATE_TOPICS, 4, 1, body)


def test_names_of_new_topics_are_counted_in_slices() -> None:
    """Each iteration counts a bounded number; a name that occurs twice is rejected once and not planned."""
    topics = Creation()
    broker, client = broker_for_creations(topics)
    names = [*NAMES[: NEW_PARTITIONS_MAX - 2], "twice", "twice"]
    client.send(new_topics_frame([{"name": name} for name in names]))
    assert client.answers() == 0
    assert broker.iterations() > 10
    assert topics.planned == names[:-2]
    answered = answer_of(client, messages.CREATE_TOPICS, 4)["topics"]
    assert [row["name"] for row in answered] == names[:-1]
    assert answered[-1]["error_code"] == int(ErrorCode.INVALID_REQUEST)


def test_counting_of_new_topics_is_bounded_per_step() -> None:
    """Each step counts at most ``STEP_ROWS`` topics, and the number of partitions includes assigned ones."""
    rows = [{"name": name, "num_partitions": 2, "assignments": [0, 0, 0]} for name in NAMES]
    results = []

    def count() -> Iterator[None]:
        results.append((yield from count_rows(rows)))

    assert sum(1 for _ in count()) == math.ceil(ROWS / STEP_ROWS)
    assert results == [(dict.fromkeys(NAMES, 1), 3 * ROWS)]


def test_new_topic_with_too_many_settings_is_refused() -> None:
    """The settings are not read; another topic in the request is planned."""
    topics = Creation()
    broker, client = broker_for_creations(topics)
    configs = [{"name": "retention.ms", "value": "1"}] * (CONFIGS_MAX + 1)
    client.send(new_topics_frame([{"name": "a", "configs": configs}, {"name": "b", "configs": configs[1:]}]))
    broker.iterations()
    first, second = answer_of(client, messages.CREATE_TOPICS, 4)["topics"]
    assert (first["error_code"], second["error_code"]) == (ErrorCode.INVALID_CONFIG, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert first["error_message"] == "a topic may be created with at most 1000 settings"
    assert topics.planned == ["b"]


def partition_of(leader: int) -> PartitionMetadata:
    return PartitionMetadata(0, leader, 0, [1, 2], [1, 2], [])


def broker_for_elections(results: dict[TopicPartition, ErrorCode]) -> tuple[Broker, Client, MetadataCache]:
    """Return a broker whose controller has these election results, and whose metadata still has the old leaders."""
    broker = Broker()
    cache = MetadataCache(broker.clock)
    for name, _ in results:
        cache.topics[name] = TopicMetadata(name, ZERO_UUID, {0: partition_of(2)})
    handler = ElectLeaders(lambda election_type, wanted: succeed(results), cache)
    broker.dispatch.table[messages.ELECT_LEADERS.key] = HandlerEntry.of(messages.ELECT_LEADERS, handler)
    return broker, broker.connect(), cache


def elections_frame(names: list[str]) -> bytes:
    topics = [{"topic": name, "partitions": [0]} for name in names]
    body = {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1000}
    return request_frame(messages.ELECT_LEADERS, 2, 1, body)


def test_many_elections_are_read_and_answered_in_slices() -> None:
    """The response contains every partition, in order."""
    results = {TopicPartition(name, 0): ErrorCode.ELECTION_NOT_NEEDED for name in NAMES}
    broker, client, _ = broker_for_elections(results)
    client.send(elections_frame(NAMES))
    assert client.answers() == 0
    assert broker.iterations() > 10
    answered = answer_of(client, messages.ELECT_LEADERS, 2)["replica_election_results"]
    assert [row["topic"] for row in answered] == NAMES


def test_an_update_of_the_metadata_checks_one_elected_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are checked once this one has a leader; those without one in time get REQUEST_TIMED_OUT."""
    names = NAMES[:1000]
    broker, client, cache = broker_for_elections({TopicPartition(name, 0): ErrorCode.NONE for name in names})
    checked: list[TopicPartition] = []
    has_new_leader = ElectLeaders._has_new_leader

    def counted(self: ElectLeaders, partition: TopicPartition, election_type: int) -> bool:
        checked.append(partition)
        return has_new_leader(self, partition, election_type)

    monkeypatch.setattr(ElectLeaders, "_has_new_leader", counted)
    client.send(elections_frame(names))
    while len(checked) <= len(names):
        broker.clock.iterate()
    assert client.answers() == 0
    for name in names[1:-1]:
        cache.topics[name] = TopicMetadata(name, ZERO_UUID, {0: partition_of(1)})
        before = len(checked)
        cache.recheck()
        assert len(checked) == before + 1
    cache.topics[names[-1]] = TopicMetadata(names[-1], ZERO_UUID, {0: partition_of(1)})
    cache.recheck()
    broker.clock.advance(1)
    broker.iterations()
    answered = answer_of(client, messages.ELECT_LEADERS, 2)["replica_election_results"]
    codes = {row["topic"]: row["partition_result"][0]["error_code"] for row in answered}
    assert {name for name, code in codes.items() if code} == {names[0]}
    assert codes[names[0]] == int(ErrorCode.REQUEST_TIMED_OUT)
