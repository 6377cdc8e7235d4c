"""Runs handlers that respond later or in slices, and builds the leader hints in responses."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, NO_LEADER, TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime.slices import Pending, Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Handler, Request
from kreplica.zookeeper import ConnectionLoss, SessionExpired

log = Logger()

T = TypeVar("T")


NO_LEADER_HINT = {"leader_id": -1, "leader_epoch": -1}
"""``current_leader`` of a response without a hint."""

_NOT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

HELD_SECONDS_MAX = 10.0
"""Time after which a request is handled even if the live brokers are still unknown."""


class LeaderHints:
    """Current leaders and their endpoints for one response (KIP-951).

    :param listener: listener of the client's connection.
    """

    __slots__ = ("_leaders", "_listener", "_metadata", "_partitions")

    def __init__(self, partitions: Partitions, metadata: MetadataCache, listener: str) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._listener = listener
        self._leaders: dict[int, None] = {}

    def leader_of(self, key: TopicPartition, code: ErrorCode) -> dict[str, int]:
        """Return ``current_leader`` for a partition with an error."""
        if code not in _NOT_LEADER_ERRORS:
            return NO_LEADER_HINT
        leader, epoch = NO_LEADER, NO_EPOCH
        partition = self._partitions.get(key)
        if partition is not None:
            leader, epoch = partition.leadership.leader, partition.leadership.leader_epoch
        topic = self._metadata.topic(key.topic)
        published = topic.partitions.get(key.partition) if topic is not None else None
        if published is not None and published.leader_epoch > epoch:
            leader, epoch = published.leader, published.leader_epoch
        if leader < 0:
            return NO_LEADER_HINT
        self._leaders[leader] = None
        return {"leader_id": leader, "leader_epoch": epoch}

    def endpoints(self) -> list[dict[str, Any]]:
        """Return ``node_endpoints`` for the leaders returned by ``leader_of``."""
        if not self._leaders:
            return []
        return [
            {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker, endpoint in self._metadata.live_on(self._listener)
            if broker.broker_id in self._leaders
        ]


def respond_with_result(request: Request, coroutine: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Respond with the result of a coroutine, which is cancelled when the connection closes.

    The coroutine turns expected errors into responses.  An unexpected error is logged with its traceback and closes the
    connection.  A lost ZooKeeper connection also closes the client's connection, and the client retries.
    """

    async def respond() -> None:
        request.respond(await coroutine)

    run_handler(request, respond())


def run_handler(request: Request, coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that responds to the request itself; errors are handled as in ``respond_with_result``."""
    running = Deferred.fromCoroutine(coroutine)
    request.on_abandoned(running.cancel)

    def failed(failure: Failure) -> None:
        if failure.check(CancelledError) is not None:
            return
        if failure.check(ConnectionLoss, SessionExpired) is None:
            log.failure("{api} failed", failure, api=request.api.name)
        request.abort(f"{request.api.name} failed: {failure.getErrorMessage()}")

    running.addErrback(failed)
    running.addErrback(lambda failure: log.failure("responding to {api} failed", failure, api=request.api.name))


def respond_in_slices(request: Request, steps: Steps[dict[str, Any] | None]) -> None:
    """Respond with the result of a generator that yields between steps.

    The generator is closed when the connection closes.

    :param steps: returns None if the generator has responded, or will respond, itself.
    """
    result = request.connection.slices.begin(steps)
    if isinstance(result, Pending):
        run_handler(request, _respond_with_remaining(request, steps))
    elif result is not None:
        request.respond(result)


async def in_slices(request: Request, steps: Steps[T]) -> T:
    """Run the work of a request in slices; short work is done at once.

    :raise CancelledError: the connection has closed.
    """
    result = request.connection.slices.begin(steps)
    return await request.in_slices(steps) if isinstance(result, Pending) else result


async def _respond_with_remaining(request: Request, steps: Steps[dict[str, Any] | None]) -> None:
    result = await request.in_slices(steps)
    if result is not None:
        request.respond(result)


def wait_for_brokers(metadata: MetadataCache, handle: Handler) -> Handler:
    """Return a handler that delays requests until the controller has sent the list of live brokers.

    A broker listens before it registers, so that the controller can reach it.  A client that received an empty list of
    brokers in the meantime would not refresh its metadata for a long time.
    """

    def handle_with_brokers(request: Request) -> None:
        if metadata.brokers:
            handle(request)
            return

        def serve(_: bool) -> None:
            if request.is_waiting:
                handle(request)

        def failed(failure: Failure) -> None:
            if failure.check(CancelledError) is None:
                log.failure("{api} failed", failure, api=request.api.name)
                request.abort(f"{request.api.name} failed")

        waiting = metadata.wait_until(lambda: bool(metadata.brokers), HELD_SECONDS_MAX)
        request.on_abandoned(waiting.cancel)
        waiting.addCallback(serve).addErrback(failed)

    return handle_with_brokers
