"""Leaders ask coordinators whether their partitions are in a producer's transaction, or have them added (KIP-890).

What is asked in one turn of the reactor's loop leaves in one request for each coordinator.
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
    """What is asked about one producer's transaction.

    :param keys: the partitions, at least one.
    :param adds: they are to come into the transaction, which may begin by that, rather than be found in it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    keys: tuple[TopicPartition, ...]
    adds: bool


Answered = Callable[[Codes], None]


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """:param timeout_s: after so long no answer is expected any more.
    :param questions_max: so many may be under way or wait; further ones are refused.
    :param per_request_max: so many go into one request.
    :param requests_max: so many requests are under way to one coordinator; what is asked meanwhile gathers.
    :param retry_s: a transaction whose predecessor is being completed is asked for again after so long, ...
    :param retries_max: ... so often.
    """

    timeout_s: float = 10.0
    questions_max: int = 20_000
    per_request_max: int = 500
    requests_max: int = 8
    retry_s: float = 0.02
    retries_max: int = 5


class _Asked:
    """A question and who asked."""

    __slots__ = ("answered", "question", "retries_left")

    def __init__(self, question: Question, answered: Answered, retries_left: int) -> None:
        self.question = question
        self.answered = answered
        self.retries_left = retries_left


class _Way:
    """What one coordinator is to be asked, and what it is being asked."""

    __slots__ = ("queue", "under_way")

    def __init__(self) -> None:
        self.queue: list[_Asked] = []
        self.under_way: dict[Deferred[None], None] = {}


_COME_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # The coordinator has not heard of the topic yet, of which this broker leads a partition; or of another that is
        # to be added with it.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


def refusal_of(code: ErrorCode, *, adds: bool, knows_abortable: bool) -> ErrorCode:
    """What a producer is told whose batch waited for an answer.

    A producer does not know its coordinator's errors from a partition's leader: of NOT_ENOUGH_REPLICAS all know that
    the batch is to be sent again, and that no metadata has to be asked for.

    :param adds: the partition was to be added: such producers know what it means that the last transaction is not over.
    :param knows_abortable: it knows TRANSACTION_ABORTABLE.
    """
    if code in _COME_AGAIN or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


class Verifier:
    """One for a broker.

    :param connections: to all brokers, this one among them.
    :param at_end_of_turn: calls back when the requests of this turn are handled.
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
        self._gathered: list[_Asked] = []
        self._refused: list[_Asked] = []
        self._ways: dict[int, _Way] = {}
        self._later: list[_Asked] = []
        self._retry: IDelayedCall | None = None
        self._count = 0
        self._is_scheduled = False
        self._is_stopped = False

    def ask(self, question: Question, answered: Answered) -> None:
        """Ask a question.

        :param answered: called exactly once, never before this has returned, with a code for each partition: NONE, it
            is in the transaction; what its coordinator says; COORDINATOR_NOT_AVAILABLE, there is none that is known,
            or too much is asked already; NETWORK_EXCEPTION, no answer came.
        """
        asked = _Asked(question, answered, self._config.retries_max)
        if self._is_stopped or self._count >= self._config.questions_max:
            self._refused.append(asked)
        else:
            self._gathered.append(asked)
        self._count += 1
        self._schedule()

    def stop(self) -> None:
        """The broker stops: leave no timer and no request behind; whoever still waits is told that no answer came."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting = [*self._gathered, *self._later]
        self._gathered, self._later = [], []
        for way in self._ways.values():
            waiting += way.queue
            way.queue = []
            for request in list(way.under_way):
                request.cancel()
        for asked in waiting:
            self._tell_all(asked, ErrorCode.NETWORK_EXCEPTION)

    # --- to whom -----------------------------------------------------------------------------------------------------

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
                self._ways.setdefault(coordinator, _Way()).queue.append(asked)
        for broker_id, way in list(self._ways.items()):
            self._go_on(broker_id, way)
        for asked in refused:
            self._tell_all(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        count = self._view.partition_count(TRANSACTION_STATE)
        if not count:
            return None
        return self._view.leader_of(TopicPartition(TRANSACTION_STATE, partition_of(transactional_id, count)))

    # --- to one coordinator ------------------------------------------------------------------------------------------

    def _go_on(self, broker_id: int, way: _Way) -> None:
        while way.queue and len(way.under_way) < self._config.requests_max:
            batch, way.queue = _take(way.queue, self._config.per_request_max)
            request = Deferred.fromCoroutine(self._request(broker_id, batch))
            way.under_way[request] = None
            request.addErrback(_request_ended).addCallback(self._ended, broker_id, way, request)
        if not way.under_way:
            self._ways.pop(broker_id, None)

    def _ended(self, _: None, broker_id: int, way: _Way, request: Deferred[None]) -> None:
        del way.under_way[request]
        if not self._is_stopped:
            self._go_on(broker_id, way)

    async def _request(self, broker_id: int, batch: list[_Asked]) -> None:
        body = {"transactions": _transactions(asked.question for asked in batch)}
        try:
            answer = await self._connections.request(
                broker_id, ADD_PARTITIONS_TO_TXN, body, timeout_s=self._config.timeout_s
            )
        except UnsupportedVersion:
            self._cannot_tell(batch)
        except ClientError as error:
            log.debug("coordinator {broker} does not answer: {error}", broker=broker_id, error=str(error))
            for asked in batch:
                self._tell_all(asked, ErrorCode.NETWORK_EXCEPTION)
        except CancelledError:
            for asked in batch:
                self._tell_all(asked, ErrorCode.NETWORK_EXCEPTION)
            raise
        else:
            self._tell(batch, answer)

    # --- what becomes of it ------------------------------------------------------------------------------------------

    def _tell(self, batch: list[_Asked], answer: dict[str, Any]) -> None:
        if "results_by_transaction" not in answer:
            self._cannot_tell(batch)
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

    def _cannot_tell(self, batch: list[_Asked]) -> None:
        """The coordinator is of a version that did not verify: what it would say is taken for granted, as it was."""
        for asked in batch:
            adds = asked.question.adds
            self._tell_all(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE if adds else ErrorCode.NONE)

    def _ask_again(self, asked: _Asked) -> None:
        """Its producer's last transaction is being completed, which takes but a moment."""
        if self._is_stopped:
            self._tell_all(asked, ErrorCode.NETWORK_EXCEPTION)
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

    def _tell_all(self, asked: _Asked, code: ErrorCode) -> None:
        self._finish(asked, dict.fromkeys(asked.question.keys, code))

    def _finish(self, asked: _Asked, codes: Codes) -> None:
        self._count -= 1
        try:
            asked.answered(codes)
        except Exception:
            log.failure("what waited for {question!r} failed", question=asked.question)


def _take(queue: list[_Asked], count_max: int) -> tuple[list[_Asked], list[_Asked]]:
    """What goes into the next request, and what stays: an answer names transactional ids alone, so each comes once."""
    taken: dict[str, _Asked] = {}
    left: list[_Asked] = []
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
        log.failure("asking a coordinator of transactions", failure)
