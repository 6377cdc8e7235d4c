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
        self.ends: list[Callable[[], object]] = []
        self.leaders: dict[int, int | None] = {}
        self.count = COUNT if known else None
        self.answers: list[tuple[str, Codes]] = []
        view: Any = self
        connections: Any = self
        self.verifier = Verifier(self.clock, view, connections, self.ends.append, config)  # type: ignore[arg-type]

    # --- interface for the verifier ---

    def partition_count(self, topic: str) -> int | None:
        assert topic == "__transaction_state"
        return self.count

    def leader_of(self, key: TopicPartition) -> int | None:
        return self.leaders.get(key.partition, 1)

    def request(self, broker_id: int, api: Api, body: Row, *, timeout_s: float) -> Deferred[Row]:
        assert api is ADD_PARTITIONS_TO_TXN
        assert api.request.build(5, body), "it fits the schema"
        answer: Deferred[Row] = Deferred()
        self.requests.append((broker_id, body, answer))
        return answer

    # --- interface for tests ---

    def ask(self, transactional_id: str = "tx", *keys: TopicPartition, epoch: int = 0, adds: bool = False) -> None:
        question = VerificationRequest(transactional_id, 7, epoch, keys or (KEY,), adds)
        self.verifier.verify(question, lambda codes: self.answers.append((transactional_id, codes)))

    def end_turn(self) -> None:
        ends, self.ends[:] = list(self.ends), []
        for callback in ends:
            callback()

    def asked(self) -> list[tuple[int, list[str]]]:
        """Return the coordinator and the transactional ids of each request."""
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


def test_questions_of_one_iteration_share_a_request(world: World) -> None:
    """Verifications from the same reactor iteration share one request per coordinator."""
    world.leaders = {partition_of("b", COUNT): 2}
    for name in ("a", "b", "c"):
        world.ask(name, KEY, OTHER, adds=name == "c")
    assert world.requests == []
    world.end_turn()
    assert world.asked() == [(1, ["a", "c"]), (2, ["b"])]
    first, second = world.requests[0][1]["transactions"]
    assert (first["verify_only"], second["verify_only"]) == (True, False)
    assert first["topics"] == [{"name": "t", "partitions": [0]}, {"name": "u", "partitions": [3]}]
    world.answer(0, codes={"u": 120})
    assert world.answers == [
        ("a", {KEY: ErrorCode.NONE, OTHER: ErrorCode.TRANSACTION_ABORTABLE}),
        ("c", {KEY: ErrorCode.NONE, OTHER: ErrorCode.TRANSACTION_ABORTABLE}),
    ]


def test_transactional_id_occurs_once_per_request(world: World) -> None:
    """Two producers with the same transactional id need separate requests."""
    world.ask("tx", epoch=0)
    world.ask("tx", epoch=1)
    world.end_turn()
    assert [body["transactions"][0]["producer_epoch"] for _, body, _ in world.requests] == [0, 1]
    world.answer(0, 90)
    world.answer(0, 0)
    assert [codes[KEY] for _, codes in world.answers] == [ErrorCode.PRODUCER_FENCED, ErrorCode.NONE]


def test_questions_are_collected_during_a_request() -> None:
    """The numbers of requests in flight per coordinator and of verifications per request are limited."""
    world = World(VerifierConfig(requests_max=2, per_request_max=2))
    for number in range(7):
        world.ask(f"id{number}")
    world.end_turn()
    assert [len(ids) for _, ids in world.asked()] == [2, 2]
    world.answer(1)
    assert [len(ids) for _, ids in world.asked()] == [2, 2]
    world.answer(0)
    world.answer(0)
    world.answer(0)
    assert len(world.answers) == 7


def test_unknown_coordinator_is_an_error(world: World) -> None:
    """The callback is never synchronous."""
    world.count = None
    world.ask()
    assert world.answers == []
    world.end_turn()
    world.count = COUNT
    world.leaders = {partition_of("tx", COUNT): None}
    world.ask()
    world.end_turn()
    assert world.answers == [("tx", {KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE})] * 2


def test_questions_are_bounded() -> None:
    """A coordinator that does not respond uses limited memory."""
    world = World(VerifierConfig(pending_max=2))
    for number in range(3):
        world.ask(f"id{number}")
    world.end_turn()
    assert world.answers == [("id2", {KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE})]
    world.answer()
    world.ask("again")
    world.end_turn()
    world.answer()
    assert [name for name, _ in world.answers] == ["id2", "id0", "id1", "again"]


@pytest.mark.parametrize("error", [ConnectionFailed("no"), ConnectionLost("gone")])
def test_connection_failure_is_retriable(world: World, error: ClientError) -> None:
    world.ask()
    world.end_turn()
    world.requests.pop()[2].errback(error)
    assert world.answers == [("tx", {KEY: ErrorCode.NETWORK_EXCEPTION})]


@pytest.mark.parametrize(("adds", "code"), [(False, ErrorCode.NONE), (True, ErrorCode.COORDINATOR_NOT_AVAILABLE)])
def test_old_coordinator(world: World, adds: bool, code: ErrorCode) -> None:
    """If the coordinator does not support verification, partitions are treated as verified; adding them fails."""
    world.ask(adds=adds)
    world.end_turn()
    world.requests.pop()[2].errback(UnsupportedVersion("old"))
    world.ask(adds=adds)
    world.end_turn()
    world.requests.pop()[2].callback({"results_by_topic_v3_and_below": []})
    assert world.answers == [("tx", {KEY: code})] * 2


def test_top_level_error_applies_to_each_partition(world: World) -> None:
    """Partitions that are missing in the response are treated as not answered."""
    world.ask()
    world.end_turn()
    world.answer(top=31)
    world.ask()
    world.end_turn()
    world.requests.pop()[2].callback({"error_code": 0, "results_by_transaction": []})
    assert [codes[KEY] for _, codes in world.answers] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.NETWORK_EXCEPTION,
    ]


def test_transaction_being_completed_is_retried(world: World) -> None:
    """Adding a partition waits while markers of the previous transaction are written."""
    world.ask(adds=True)
    world.end_turn()
    world.answer(code=51)
    assert world.answers == []
    world.clock.advance(0.02)
    world.end_turn()
    world.answer(code=0)
    assert world.answers == [("tx", {KEY: ErrorCode.NONE})]


def test_retry_is_limited(world: World) -> None:
    """After a tenth of a second the error is returned; a pure verification is not retried."""
    world.ask("old")
    world.ask("new", adds=True)
    world.end_turn()
    for _ in range(6):
        world.answer(code=51)
        world.clock.advance(0.02)
        world.end_turn()
    assert world.answers == [(name, {KEY: ErrorCode.CONCURRENT_TRANSACTIONS}) for name in ("old", "new")]
    assert world.requests == []


def test_stop_answers_all_questions() -> None:
    """All verifications get NETWORK_EXCEPTION, and no timers or requests are left."""
    world = World(VerifierConfig(requests_max=1))
    world.ask("again", adds=True)
    world.end_turn()
    world.answer(code=51)
    world.ask("sent")
    world.end_turn()
    world.ask("queued")
    world.end_turn()
    world.ask("gathered")
    world.verifier.stop()
    world.ask("late")
    world.end_turn()
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
