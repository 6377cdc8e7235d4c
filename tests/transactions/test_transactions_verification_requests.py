"""Requests from partition leaders to transaction coordinators, and their results (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.client.errors import ClientError, ConnectionFailed, ConnectionLost, UnsupportedVersion
from kreplica.coordination import partition_of
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.transactions.verification import Codes, VerificationRequest, Verifier, VerifierConfig, rejection_of
from kreplica.wire.messages import ADD_PARTITIONS_TO_TXN, Api

KEY, OTHER = TopicPartition("t", 0), TopicPartition("u", 3)
COUNT = 50
Row = dict[str, Any]


class World:
    """Scripted coordinators: each partition of their topic is led by broker 1 or 2."""

    def __init__(self, config: VerifierConfig | None = None, *, known: bool = True) -> None:
        self.clock = Clock()
        self.requests: list[tuple[int, Row, Deferred[Row]]] = []
        self.end_callbacks: list[Callable[[], object]] = []
        self.leaders: dict[int, int | None] = {}
        self.count = COUNT if known else None
        self.answers: list[tuple[str, Codes]] = []
        view: Any = self
        connections: Any = self
        self.verifier = Verifier(self.clock, view, connections, self.end_callbacks.append, config)  # type: ignore[arg-type]

    # --- interface for the verifier ---

    def partition_count(self, topic: str) -> int | None:
        assert topic == "__transaction_state"
        return self.count

    def leader_of(self, key: TopicPartition) -> int | None:
        return self.leaders.get(key.partition, 1)

    def request(self, broker_id: int, api: Api, body: Row, *, timeout_s: float) -> Deferred[Row]:
        assert api is ADD_PARTITIONS_TO_TXN
        assert api.request.build(5, body), "the request does not match the schema"
        answer: Deferred[Row] = Deferred()
        self.requests.append((broker_id, body, answer))
        return answer

    # --- interface for tests ---

    def verify(self, transactional_id: str = "tx", *keys: TopicPartition, epoch: int = 0, adds: bool = False) -> None:
        request = VerificationRequest(transactional_id, 7, epoch, keys or (KEY,), adds)
        self.verifier.verify(request, lambda codes: self.answers.append((transactional_id, codes)))

    def end_iteration(self) -> None:
        end_callbacks, self.end_callbacks[:] = list(self.end_callbacks), []
        for callback in end_callbacks:
            callback()

    def sent_ids(self) -> list[tuple[int, list[str]]]:
        """Return the coordinator and the transactional IDs of each request."""
        return [(to, [row["transactional_id"] for row in body["transactions"]]) for to, body, _ in self.requests]

    def answer(self, number: int = 0, code: int = 0, codes: dict[str, int] | None = None, top: int = 0) -> None:
        """Answer a request with one code for all partitions, or by topic."""
        _, body, waiting = self.requests.pop(number)
        rows = [
            {
                "transactional_id": row["transactional_id"],
                "topic_results": [
                    {
                        "name": topic["name"],
                        "results_by_partition": [
                            {"partition_index": index, "partition_error_code": (codes or {}).get(topic["name"], code)}
                            for index in topic["partitions"]
                        ],
                    }
                    for topic in row["topics"]
                ],
            }
            for row in body["transactions"]
        ]
        waiting.callback({"error_code": top, "results_by_transaction": [] if top else rows})


@pytest.fixture
def world() -> World:
    return World()


def test_verifications_of_one_iteration_share_a_request(world: World) -> None:
    """Verifications of one reactor iteration share one request per coordinator."""
    world.leaders = {partition_of("b", COUNT): 2}
    for name in ("a", "b", "c"):
        world.verify(name, KEY, OTHER, adds=name == "c")
    assert world.requests == []
    world.end_iteration()
    assert world.sent_ids() == [(1, ["a", "c"]), (2, ["b"])]
    first, second = world.requests[0][1]["transactions"]
    assert (first["verify_only"], second["verify_only"]) == (True, False)
    assert first["topics"] == [{"name": "t", "partitions": [0]}, {"name": "u", "partitions": [3]}]
    world.answer(0, codes={"u": 120})
    assert world.answers == [
        ("a", {KEY: ErrorCode.NONE, OTHER: ErrorCode.TRANSACTION_ABORTABLE}),
        ("c", {KEY: ErrorCode.NONE, OTHER: ErrorCode.TRANSACTION_ABORTABLE}),
    ]


def test_transactional_id_occurs_once_per_request(world: World) -> None:
    """Two epochs of a transactional ID need separate requests."""
    world.verify("tx", epoch=0)
    world.verify("tx", epoch=1)
    world.end_iteration()
    assert [body["transactions"][0]["producer_epoch"] for _, body, _ in world.requests] == [0, 1]
    world.answer(0, 90)
    world.answer(0, 0)
    assert [codes[KEY] for _, codes in world.answers] == [ErrorCode.PRODUCER_FENCED, ErrorCode.NONE]


def test_verifications_are_collected_during_a_request() -> None:
    """Requests in flight per coordinator and verifications per request are limited."""
    world = World(VerifierConfig(requests_max=2, per_request_max=2))
    for number in range(7):
        world.verify(f"id{number}")
    world.end_iteration()
    assert [len(ids) for _, ids in world.sent_ids()] == [2, 2]
    world.answer(1)
    assert [len(ids) for _, ids in world.sent_ids()] == [2, 2]
    world.answer(0)
    world.answer(0)
    world.answer(0)
    assert len(world.answers) == 7


def test_unknown_coordinator_is_an_error(world: World) -> None:
    """Without a coordinator the callback gets an error, but never synchronously."""
    world.count = None
    world.verify()
    assert world.answers == []
    world.end_iteration()
    world.count = COUNT
    world.leaders = {partition_of("tx", COUNT): None}
    world.verify()
    world.end_iteration()
    assert world.answers == [("tx", {KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE})] * 2


def test_verifications_are_bounded() -> None:
    """Verifications that wait for an unresponsive coordinator are limited."""
    world = World(VerifierConfig(pending_max=2))
    for number in range(3):
        world.verify(f"id{number}")
    world.end_iteration()
    assert world.answers == [("id2", {KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE})]
    world.answer()
    world.verify("again")
    world.end_iteration()
    world.answer()
    assert [name for name, _ in world.answers] == ["id2", "id0", "id1", "again"]


@pytest.mark.parametrize("error", [ConnectionFailed("no"), ConnectionLost("gone")])
def test_connection_failure_is_retriable(world: World, error: ClientError) -> None:
    world.verify()
    world.end_iteration()
    world.requests.pop()[2].errback(error)
    assert world.answers == [("tx", {KEY: ErrorCode.NETWORK_EXCEPTION})]


@pytest.mark.parametrize(("adds", "code"), [(False, ErrorCode.NONE), (True, ErrorCode.COORDINATOR_NOT_AVAILABLE)])
def test_old_coordinator(world: World, adds: bool, code: ErrorCode) -> None:
    """If the coordinator is too old to verify, writes are accepted but partitions cannot be added."""
    world.verify(adds=adds)
    world.end_iteration()
    world.requests.pop()[2].errback(UnsupportedVersion("old"))
    world.verify(adds=adds)
    world.end_iteration()
    world.requests.pop()[2].callback({"results_by_topic_v3_and_below": []})
    assert world.answers == [("tx", {KEY: code})] * 2


def test_top_level_error_applies_to_each_partition(world: World) -> None:
    """A partition that is missing from the response gets NETWORK_EXCEPTION."""
    world.verify()
    world.end_iteration()
    world.answer(top=31)
    world.verify()
    world.end_iteration()
    world.requests.pop()[2].callback({"error_code": 0, "results_by_transaction": []})
    assert [codes[KEY] for _, codes in world.answers] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.NETWORK_EXCEPTION,
    ]


def test_transaction_being_completed_is_retried(world: World) -> None:
    """Adding a partition waits while markers of the previous transaction are written."""
    world.verify(adds=True)
    world.end_iteration()
    world.answer(code=51)
    assert world.answers == []
    world.clock.advance(0.02)
    world.end_iteration()
    world.answer(code=0)
    assert world.answers == [("tx", {KEY: ErrorCode.NONE})]


def test_retry_is_limited(world: World) -> None:
    """After a tenth of a second the error is returned; a verification that adds nothing is not retried."""
    world.verify("old")
    world.verify("new", adds=True)
    world.end_iteration()
    for _ in range(6):
        world.answer(code=51)
        world.clock.advance(0.02)
        world.end_iteration()
    assert world.answers == [(name, {KEY: ErrorCode.CONCURRENT_TRANSACTIONS}) for name in ("old", "new")]
    assert world.requests == []


def test_stop_answers_all_verifications() -> None:
    """All pending verifications get NETWORK_EXCEPTION, and no timers or requests are left."""
    world = World(VerifierConfig(requests_max=1))
    world.verify("again", adds=True)
    world.end_iteration()
    world.answer(code=51)
    world.verify("sent")
    world.end_iteration()
    world.verify("queued")
    world.end_iteration()
    world.verify("gathered")
    world.verifier.stop()
    world.verify("late")
    world.end_iteration()
    codes_by_name = {name: codes[KEY] for name, codes in world.answers}
    no_answer = dict.fromkeys(("again", "sent", "queued", "gathered"), ErrorCode.NETWORK_EXCEPTION)
    assert codes_by_name == no_answer | {"late": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.clock.getDelayedCalls() == []


@pytest.mark.parametrize(
    ("code", "old", "abortable", "adding"),
    [
        (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE),
        *[
            (code, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS)
            for code in (
                ErrorCode.NETWORK_EXCEPTION,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.OPERATION_NOT_ATTEMPTED,
            )
        ],
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        ),
        (ErrorCode.PRODUCER_FENCED, *[ErrorCode.INVALID_PRODUCER_EPOCH] * 3),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3),
    ],
)
def test_producers_get_errors_known_to_their_version(
    code: ErrorCode, old: ErrorCode, abortable: ErrorCode, adding: ErrorCode
) -> None:
    """Coordinator errors are translated to codes that the producer's version handles."""
    assert rejection_of(code, adds=False, knows_abortable=False) is old
    assert rejection_of(code, adds=False, knows_abortable=True) is abortable
    assert rejection_of(code, adds=True, knows_abortable=True) is adding
