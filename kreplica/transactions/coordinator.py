"""Transaction coordinator of one broker: finds the shard of a request, decides, and writes to the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.coordination import Shards, StateLog
from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.transactions import fencing
from kreplica.transactions.add_partitions import add, verify
from kreplica.transactions.config import TransactionsConfig
from kreplica.transactions.decision_result import Decision, ProducerResponse, rejected
from kreplica.transactions.end_transaction import EndRequest, end
from kreplica.transactions.init_producer_id import InitRequest, begin
from kreplica.transactions.marker_sender import Markers
from kreplica.transactions.memory_limits import TransactionMemory
from kreplica.transactions.rejected_end_log import RejectedEndLog
from kreplica.transactions.shard import Entry, TransactionShard
from kreplica.transactions.states import Identity, Transaction
from kreplica.transactions.timeouts import Timeouts

log = Logger()

Respond = Callable[[ProducerResponse], None]
Decide = Callable[[Transaction | None, int | None], Decision]
"""Returns the decision, given the state of the transactional id, and a new producer id if one is needed."""

MEMORY_LIMIT_REACHED = ProducerResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""Error code returned when a memory limit is reached. All clients retry; memory is freed when
transactions end or transactional ids expire."""

MakeShards = Callable[[Callable[[StateLog], TransactionShard]], Shards[TransactionShard]]


class TransactionCoordinator:
    """Coordinator of the transactional ids whose partitions of ``__transaction_state`` this broker leads.

    Every request calls its callback exactly once, possibly before the method returns.

    :param make_shards: called with a factory for shards.
    :param next_producer_id: returns a producer id that is unique in the cluster.
    :ivar memory: memory used by all transactional ids.
    """

    def __init__(
        self,
        runtime: Runtime,
        make_shards: MakeShards,
        markers: Markers,
        next_producer_id: Callable[[], Awaitable[int]],
        config: TransactionsConfig,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._markers = markers
        self._next_producer_id = next_producer_id
        self.memory = TransactionMemory(config.memory)
        self.shards = make_shards(lambda state_log: TransactionShard(runtime, state_log, markers, self.memory))
        self._rejected_ends = RejectedEndLog(runtime.reactor)
        self._timeouts = Timeouts(runtime, self.shards.loaded_shards, config)
        self._waiting: dict[Deferred[None], None] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Start the timers for transaction timeouts and for the expiry of transactional ids."""
        self._timeouts.start()

    def stop(self) -> None:
        """Cancel all timers and respond to pending requests with NOT_COORDINATOR."""
        self._is_stopped = True
        self._timeouts.stop()
        self._markers.stop()
        for shard in self.shards.loaded_shards():
            shard.unload()
        for waiting in list(self._waiting):
            waiting.cancel()

    # --- producer requests -------------------------------------------------------------------------------------------

    def begin(self, transactional_id: str, request: InitRequest, respond: Respond) -> None:
        """Handle InitProducerId: grant a producer id and epoch, and fence earlier producers."""
        code = self._rejection(transactional_id, request)
        if code is not ErrorCode.NONE:
            respond(ProducerResponse(code))
            return

        def decide(transaction: Transaction | None, new_producer_id: int | None) -> Decision:
            now_ms = self._runtime.wall_clock_ms()
            return begin(transactional_id, transaction, request, new_producer_id, now_ms)

        self._decide(transactional_id, decide, respond, address=request.address)

    def add(
        self,
        transactional_id: str,
        claimed: Identity,
        added: Collection[TopicPartition],
        respond: Callable[[ErrorCode], None],
    ) -> None:
        """Handle AddPartitionsToTxn; the first partition starts the transaction."""

        def decide(transaction: Transaction | None, _: int | None) -> Decision:
            return add(transaction, claimed, added, self._runtime.wall_clock_ms())

        self._decide(transactional_id, decide, lambda response: respond(response.code))

    def verify(
        self, transactional_id: str, claimed: Identity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition that is in the producer's ongoing transaction, else the error (KIP-890)."""
        try:
            entry = self._shard_of(transactional_id).get(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return verify(None if entry is None else entry.transaction, claimed, partitions)

    def end(self, transactional_id: str, request: EndRequest, respond: Respond) -> None:
        """Handle EndTxn; responds once the decision is committed."""

        def decide(transaction: Transaction | None, new_producer_id: int | None) -> Decision:
            return end(transaction, request, new_producer_id, self._runtime.wall_clock_ms())

        def respond_to_end(response: ProducerResponse) -> None:
            if response.code is not ErrorCode.NONE:
                entry = self._entry_of(transactional_id)
                self._rejected_ends.log_rejection(transactional_id, request, entry, response.code)
            respond(response)

        self._decide(transactional_id, decide, respond_to_end)

    # --- admin requests ----------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of a transactional id.

        :raise KafkaError: another broker coordinates it; TRANSACTIONAL_ID_NOT_FOUND.
        """
        entry = self._shard_of(transactional_id).get(transactional_id)
        if entry is None or entry.transaction is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} does not exist"
            )
        return entry.transaction

    def transactions(self) -> list[Transaction]:
        """Return all transactional ids that this broker coordinates.

        :raise KafkaError: COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded.
        """
        if self.shards.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "some transactional ids are being loaded")
        entries = (entry for shard in self.shards.loaded_shards() for entry in shard.entries())
        return [entry.transaction for entry in entries if entry.transaction is not None]

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _rejection(self, transactional_id: str, request: InitRequest) -> ErrorCode:
        """Return the error for an InitProducerId that is invalid in any state, or NONE."""
        if not fencing.is_two_phase_allowed(
            request.is_two_phase or request.keeps_prepared, enabled=self._config.is_two_phase_enabled
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keeps_prepared and not request.is_two_phase:
            return ErrorCode.INVALID_REQUEST  # a prepared transaction must not time out
        if not request.is_two_phase and not fencing.is_allowed_timeout(
            request.requested_timeout_ms, self._config.timeout_ms_max
        ):
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def _entry_of(self, transactional_id: str) -> Entry | None:
        try:
            return self._shard_of(transactional_id).get(transactional_id)
        except KafkaError:
            return None

    def _shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional id.

        :raise KafkaError: INVALID_REQUEST, or an error from ``Shards.current_shard_of``.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "transactional_id is empty")
        if self._is_stopped:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "this broker is shutting down")
        return self.shards.current_shard_of(transactional_id)

    def _decide(
        self,
        transactional_id: str,
        decide: Decide,
        respond: Respond,
        new_producer_id: int | None = None,
        *,
        may_wait: bool = True,
        address: str = "",
    ) -> None:
        try:
            shard = self._shard_of(transactional_id)
        except KafkaError as error:
            respond(ProducerResponse(error.code))
            return
        entry = shard.get(transactional_id)
        decision = decide(None if entry is None else entry.transaction, new_producer_id)
        if entry is not None and not entry.is_free:
            decision = _while_pending(decision)
        if decision.needs_producer_id:
            if entry is None and not shard.has_room(transactional_id, address):
                respond(MEMORY_LIMIT_REACHED)
            else:
                self._decide_with_id(transactional_id, decide, respond, address)
        elif decision.new is not None:
            if shard.has_room(transactional_id, address, decision.new):
                shard.write(decision.new, partial(_written, decision.response, respond), address)
            else:
                respond(MEMORY_LIMIT_REACHED)
        else:
            retry = partial(
                self._decide, transactional_id, decide, respond, new_producer_id, may_wait=False, address=address
            )
            waits = may_wait and (
                (entry is not None and is_early_request(entry, decision))
                or (shard.delayed.has_requests(transactional_id) and decision.response.code not in _FENCED)
            )
            if not (waits and shard.delayed.wait(transactional_id, retry)):
                respond(decision.response)

    def _decide_with_id(self, transactional_id: str, decide: Decide, respond: Respond, address: str) -> None:
        """Decide again with a new producer id; the state may have changed meanwhile."""

        async def decide_again() -> None:
            try:
                new_producer_id = await self._next_producer_id()
            except (KreplicaError, CancelledError):
                respond(ProducerResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            self._decide(transactional_id, decide, respond, new_producer_id, address=address)

        waiting = Deferred.fromCoroutine(decide_again())
        self._waiting[waiting] = None
        waiting.addErrback(lambda failure: log.failure("cannot continue with a new producer ID", failure))
        waiting.addCallback(lambda _: self._waiting.pop(waiting, None))


def is_early_request(entry: Entry, decision: Decision) -> bool:
    """Return True if a request is rejected only because markers are being written, which takes a short time."""
    return entry.is_completing and decision.response.code is ErrorCode.CONCURRENT_TRANSACTIONS


def _written(response: ProducerResponse, respond: Respond, code: ErrorCode) -> None:
    respond(response if code is ErrorCode.NONE else ProducerResponse(code))


def _while_pending(decision: Decision) -> Decision:
    """Return the decision while a write is pending: fenced producers are rejected, other producers must retry."""
    return rejected(decision.response.code if decision.response.code in _FENCED else ErrorCode.CONCURRENT_TRANSACTIONS)


_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
