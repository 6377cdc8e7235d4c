"""Asks transaction coordinators on behalf of partition leaders whether partitions are in a transaction (KIP-890).

Questions of one reactor iteration are sent in one request per coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.errors import ClientError, UnsupportedVersion
from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.coordination import BrokerConnections, ClusterView, partition_of
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import ADD_PARTITIONS_TO_TXN

log = Logger()

Codes = Mapping[TopicPartition, ErrorCode]
AtEndOfTurn = Callable[[Callable[[], object]], None]


class Question(NamedTuple):
    """A question about one producer's transaction.

    :param keys: partitions, at least one.
    :param adds: add the partitions to the transaction, which may start it; otherwise only verify them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    keys: tuple[TopicPartition, ...]
    adds: bool


Answered = Callable[[Codes], None]


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """Limits and delays.

    :param timeout_s: request timeout.
    :param questions_max: maximum number of unanswered questions; further ones are refused.
    :param per_request_max: maximum number of questions in a request.
    :param requests_max: maximum number of requests in flight per coordinator.
    :param retry_s: delay before a question is repeated because the previous transaction is being completed.
    :param retries_max: maximum number of such repetitions.
    """

    timeout_s: float = 10.0
    questions_max: int = 20_000
    per_request_max: int = 500
    requests_max: int = 8
    retry_s: float = 0.02
    retries_max: int = 5


class _PendingQuestion:
    """A question and its callback."""

    __slots__ = ("answered", "question", "retries_left")

    def __init__(self, question: Question, answered: Answered, retries_left: int) -> None:
        self.question = question
        self.answered = answered
        self.retries_left = retries_left


class _CoordinatorQueue:
    """Questions to one coordinator: waiting and in flight."""

    __slots__ = ("in_flight", "questions")

    def __init__(self) -> None:
        self.questions: list[_PendingQuestion] = []
        self.in_flight: dict[Deferred[None], None] = {}


_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator's metadata may lag behind: it does not know this topic, or another one in the request, yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def refusal_of(code: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """Return the error for a producer whose batch waited for a failed verification.

    Producers do not expect coordinator errors from partition leaders. NOT_ENOUGH_REPLICAS makes every client retry the
    batch without a metadata request.

    :param adds: the request adds the partition; such producers understand CONCURRENT_TRANSACTIONS.
    :param knows_abortable: the client supports TRANSACTION_ABORTABLE.
    """
    if code in _RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Verifier:
    """Verifier of one broker.

    :param connections: to all brokers, including this one.
    :param at_end_of_turn: schedules a callback after the requests of this reactor iteration.
    """

    def __init__(
        self,
        reactor: Reactor,
        view: ClusterView,
        connections: BrokerConnections,
        at_end_of_turn: AtEndOfTurn,
        config: VerifierConfig | None = None,
    ) -> None:
        self._reactor = reactor
        self._view = view
        self._connections = connections
        self._at_end_of_turn = at_end_of_turn
        self._config = config or VerifierConfig()
        self._gathered: list[_PendingQuestion] = []
        self._refused: list[_PendingQuestion] = []
        self._queues: dict[int, _CoordinatorQueue] = {}
        self._later: list[_PendingQuestion] = []
        self._retry: IDelayedCall | None = None
        self._count = 0
        self._is_scheduled = False
        self._is_stopped = False

    def ask(self, question: Question, answered: Answered) -> None:
        """Ask a question.

        :param answered: called exactly once, never before this method has returned, with a code for each partition.
            NONE: it is in the transaction. COORDINATOR_NOT_AVAILABLE: no coordinator is known, or there are too many
            questions. NETWORK_EXCEPTION: no response. Otherwise the coordinator's error.
        """
        asked = _PendingQuestion(question, answered, self._config.retries_max)
        if self._is_stopped or self._count >= self._config.questions_max:
            self._refused.append(asked)
        else:
            self._gathered.append(asked)
        self._count += 1
        self._schedule()

    def stop(self) -> None:
        """Cancel all timers and requests, and answer open questions with NETWORK_EXCEPTION."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting = [*self._gathered, *self._later]
        self._gathered, self._later = [], []
        for queue in self._queues.values():
            waiting += queue.questions
            queue.questions = []
            for request in list(queue.in_flight):
                request.cancel()
        for asked in waiting:
            self._answer_all(asked, ErrorCode.NETWORK_EXCEPTION)

    # --- routing -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._at_end_of_turn(self._send)

    def _send(self) -> None:
        self._is_scheduled = False
        refused, self._refused = self._refused, []
        gathered, self._gathered = self._gathered, []
        for asked in gathered:
            coordinator = self._coordinator_of(asked.question.transactional_id)
            if coordinator is None:
                refused.append(asked)
            else:
                self._queues.setdefault(coordinator, _CoordinatorQueue()).questions.append(asked)
        for broker_id, queue in list(self._queues.items()):
            self._send_requests(broker_id, queue)
        for asked in refused:
            self._answer_all(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        count = self._view.partition_count(TRANSACTION_STATE)
        if not count:
            return None
        return self._view.leader_of(TopicPartition(TRANSACTION_STATE, partition_of(transactional_id, count)))

    # --- requests to one coordinator ---------------------------------------------------------------------------------

    def _send_requests(self, broker_id: int, queue: _CoordinatorQueue) -> None:
        while queue.questions and len(queue.in_flight) < self._config.requests_max:
            batch, queue.questions = _take(queue.questions, self._config.per_request_max)
            request = Deferred.fromCoroutine(self._request(broker_id, batch))
            queue.in_flight[request] = None
            request.addErrback(_request_ended).addCallback(self._ended, broker_id, queue, request)
        if not queue.in_flight:
            self._queues.pop(broker_id, None)

    def _ended(self, _: None, broker_id: int, queue: _CoordinatorQueue, request: Deferred[None]) -> None:
        del queue.in_flight[request]
        if not self._is_stopped:
            self._send_requests(broker_id, queue)

    async def _request(self, broker_id: int, batch: list[_PendingQuestion]) -> None:
        body = {"transactions": _transactions(asked.question for asked in batch)}
        try:
            answer = await self._connections.request(
                broker_id, ADD_PARTITIONS_TO_TXN, body, timeout_s=self._config.timeout_s
            )
        except UnsupportedVersion:
            self._not_supported(batch)
        except ClientError as error:
            log.debug("no response from coordinator {broker}: {error}", broker=broker_id, error=str(error))
            for asked in batch:
                self._answer_all(asked, ErrorCode.NETWORK_EXCEPTION)
        except CancelledError:
            for asked in batch:
                self._answer_all(asked, ErrorCode.NETWORK_EXCEPTION)
            raise
        else:
            self._handle_response(batch, answer)

    # --- responses ---------------------------------------------------------------------------------------------------

    def _handle_response(self, batch: list[_PendingQuestion], answer: dict[str, Any]) -> None:
        if "results_by_transaction" not in answer:
            self._not_supported(batch)
            return
        top = ErrorCode.of(answer["error_code"])
        found = _codes(answer)
        for asked in batch:
            question = asked.question
            missing = top if top is not ErrorCode.NONE else ErrorCode.NETWORK_EXCEPTION
            of_id = found.get(question.transactional_id, {})
            codes = {key: of_id.get(key, missing) for key in question.keys}
            if question.adds and asked.retries_left and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                self._ask_again(asked)
            else:
                self._finish(asked, codes)

    def _not_supported(self, batch: list[_PendingQuestion]) -> None:
        """Handle a coordinator of a version without verification: verified as before KIP-890, adding is refused."""
        for asked in batch:
            adds = asked.question.adds
            self._answer_all(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE if adds else ErrorCode.NONE)

    def _ask_again(self, asked: _PendingQuestion) -> None:
        """Repeat a question shortly, because the producer's previous transaction is being completed."""
        if self._is_stopped:
            self._answer_all(asked, ErrorCode.NETWORK_EXCEPTION)
            return
        asked.retries_left -= 1
        self._later.append(asked)
        if self._retry is None:
            self._retry = self._reactor.callLater(self._config.retry_s, self._ask_later)

    def _ask_later(self) -> None:
        self._retry = None
        self._gathered += self._later
        self._later = []
        self._schedule()

    def _answer_all(self, asked: _PendingQuestion, code: ErrorCode) -> None:
        self._finish(asked, dict.fromkeys(asked.question.keys, code))

    def _finish(self, asked: _PendingQuestion, codes: Codes) -> None:
        self._count -= 1
        try:
            asked.answered(codes)
        except Exception:
            log.failure("the callback of {question!r} failed", question=asked.question)


def _take(queue: list[_PendingQuestion], count_max: int) -> tuple[list[_PendingQuestion], list[_PendingQuestion]]:
    """Split the queue into the next request and the rest; a transactional id occurs once per request."""
    taken: dict[str, _PendingQuestion] = {}
    left: list[_PendingQuestion] = []
    for asked in queue:
        transactional_id = asked.question.transactional_id
        if transactional_id in taken or len(taken) >= count_max:
            left.append(asked)
        else:
            taken[transactional_id] = asked
    return list(taken.values()), left


def _transactions(questions: Iterable[Question]) -> list[dict[str, Any]]:
    rows = []
    for question in questions:
        topics: dict[str, list[int]] = {}
        for key in question.keys:
            topics.setdefault(key.topic, []).append(key.partition)
        rows.append(
            {
                "transactional_id": question.transactional_id,
                "producer_id": question.producer_id,
                "producer_epoch": question.producer_epoch,
                "verify_only": not question.adds,
                "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
            }
        )
    return rows


def _codes(answer: dict[str, Any]) -> dict[str, dict[TopicPartition, ErrorCode]]:
    return {
        row["transactional_id"]: {
            TopicPartition(topic["name"], partition["partition_index"]): ErrorCode.of(partition["partition_error_code"])
            for topic in row["topic_results"]
            for partition in topic["results_by_partition"]
        }
        for row in answer["results_by_transaction"]
    }


def _request_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("request to a transaction coordinator failed", failure)
