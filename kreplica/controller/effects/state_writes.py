"""The controller's ZooKeeper writes: every write is a multi that checks the version of ``/controller_epoch``.

A rejected change is returned to the caller with the reason; the caller must decide again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions.state_changes import StateChange
from kreplica.errors import KreplicaError
from kreplica.model import LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.zookeeper import (
    BadVersion,
    Check,
    Create,
    Delete,
    GuardFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    UnitOutcome,
    ZooKeeperError,
    list_all,
    write_units,
)
from kreplica.zookeeper.batches import MultiReader, MultiWriter

PART_SIZE = 1000
"""Number of states encoded without yielding, and written in one multi if they fit."""

PARTS_IN_FLIGHT_MAX = 16

log = Logger()

CONFLICTS = (BadVersion, NoNode, NodeExists, NotEmpty)
"""Errors caused by a concurrent write; after any other error the outcome is unknown."""


class MultiClient(MultiReader, MultiWriter, Protocol):
    """ZooKeeper client that sends several operations, or several reads, in one request."""


class ControllerMoved(KreplicaError):
    """Another controller has been elected; this broker must no longer write as the controller."""


class Rejected(NamedTuple):
    """A rejected change and the conflict that caused it."""

    change: StateChange
    error: ZooKeeperError


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of writing the states of one step."""

    written: tuple[StateChange, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic znode to replace, with all other changes of the same multi.

    :param version: version of the znode on which the change is based.
    :param states: states of remaining partitions.
    :param removed_partitions: removed partitions with their last states.
    :param requests: paths of the request znodes that the change fulfils.
    """

    assignment: TopicAssignment
    version: int
    states: tuple[StateChange, ...] = ()
    removed_partitions: tuple[tuple[TopicPartition, LeaderAndIsr], ...] = ()
    requests: tuple[str, ...] = ()


class StateWrites:
    """Writes under one controller epoch.

    :param epoch_znode_version: version of ``/controller_epoch`` from this controller's election.
    :param yield_to_reactor: yields to the reactor if the current loop has run long enough.
    """

    def __init__(
        self, client: MultiClient, epoch_znode_version: int, yield_to_reactor: Callable[[], Awaitable[None]]
    ) -> None:
        self._client = client
        self._yield_to_reactor = yield_to_reactor
        self._guard = guard_of_term(epoch_znode_version)

    async def write_states(self, changes: Sequence[StateChange]) -> Outcome:
        """Write the states of many partitions in as few multis as the size limit allows.

        Up to ``PARTS_IN_FLIGHT_MAX`` parts are written concurrently.

        :return: the written changes with their new partition epochs, and the rejected ones.
        :raise ControllerMoved: another controller has been elected.
        """
        errors: dict[int, list[ZooKeeperError | None]] = {}
        running: list[Deferred[None]] = []

        async def write(start: int) -> None:
            errors[start] = await self._write([_operations(change) for change in changes[start : start + PART_SIZE]])

        try:
            for number, start in enumerate(range(0, len(changes), PART_SIZE)):
                running.append(Deferred.fromCoroutine(write(start)))
                await self._yield_to_reactor()
                if number >= PARTS_IN_FLIGHT_MAX:
                    await running[number - PARTS_IN_FLIGHT_MAX]
        finally:
            results = DeferredList(running, consumeErrors=True)
        for succeeded, failure in await results:
            if not succeeded:
                cast(Failure, failure).raiseException()
        return await self._outcome(changes, [error for start in sorted(errors) for error in errors[start]])

    async def _outcome(self, changes: Sequence[StateChange], errors: Sequence[ZooKeeperError | None]) -> Outcome:
        written: list[StateChange] = []
        shared: dict[tuple[Any, ...], LeaderAndIsr] = {}
        rejected: list[Rejected] = []
        for number, (change, error) in enumerate(zip(changes, errors, strict=True), 1):
            if error is None:
                written.append(_written(change, shared))
            else:
                rejected.append(Rejected(change, error))
            if number % PART_SIZE == 0:
                await self._yield_to_reactor()
        return Outcome(tuple(written), tuple(rejected))

    async def write_topics(self, changes: Sequence[TopicChange]) -> list[TopicChange]:
        """Replace topic znodes, each in one multi with its dependent changes.

        :return: the written changes, whose states have new partition epochs.  Changes that conflict with a concurrent
            write are omitted.
        :raise ControllerMoved: another controller has been elected.
        """
        results = await self._write([_topic_operations(change) for change in changes])
        shared: dict[tuple[Any, ...], LeaderAndIsr] = {}
        return [
            replace(change, states=tuple([_written(state, shared) for state in change.states]))
            for change, error in zip(changes, results, strict=True)
            if error is None
        ]

    async def create_partition_parents(self, topics: Iterable[str]) -> None:
        """Create ``/brokers/topics/T/partitions`` for topics whose creation was interrupted."""
        topics = list(topics)
        errors = await self._write([[Create(znodes.partitions_path(topic), b"")] for topic in topics])
        for error in errors:
            if error is not None and not isinstance(error, (NodeExists, NoNode)):
                raise error

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic's tree, its configuration, its partition requests, and finally the request to delete it."""
        paths = await self._tree(
            znodes.topic_path(topic), znodes.partitions_add_path(topic), znodes.partitions_remove_path(topic)
        )
        paths += [znodes.config_path("topics", topic)]
        # Children first, with one unit per path, so that a missing znode does not block the others.
        errors = await self._write([[Delete(path, -1)] for path in paths])
        failed = next((e for e in errors if e is not None and not isinstance(e, NoNode)), None)
        if failed is not None:
            raise failed
        await self.remove([znodes.delete_topic_path(topic)])

    async def write_broker_epochs(self, epochs: Mapping[int, int]) -> None:
        """Write the epochs of the broker processes that were handled, for the next controller."""
        (error,) = await self._write([[SetData(znodes.BROKER_EPOCHS, documents.encode_broker_epochs(epochs), -1)]])
        if error is not None:
            log.error("controller: {path} does not exist; restart any broker to create it", path=znodes.BROKER_EPOCHS)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove finished requests and notifications, children first; ignore missing znodes and those with children."""
        for error in await self._write([[Delete(path, -1)] for path in paths]):
            if error is not None and not isinstance(error, (NoNode, NotEmpty)):
                raise error

    async def remove_tree(self, path: str) -> None:
        """Remove a znode and everything below it; ignore missing znodes."""
        await self.remove(await self._tree(path))

    async def create_requests(self, requests: Mapping[str, bytes]) -> None:
        """Create request znodes and their parents; existing ones are kept.

        :param requests: data by path.
        """
        parents = sorted({path.rpartition("/")[0] for path in requests})
        errors = await self._write([[Create(path, b"")] for path in parents])
        errors += await self._write([[Create(path, data)] for path, data in requests.items()])
        for error in errors:
            if error is not None and not isinstance(error, NodeExists):
                raise error

    async def put(self, path: str, data: bytes) -> None:
        """Replace the data of a persistent znode, or create it."""
        (error,) = await self._write([[SetData(path, data, -1)]])
        if error is not None:
            await self._write([[Create(path, data)]])

    async def write_progress(self, path: str, totals: bytes, chunks: Mapping[str, tuple[bytes, bool]]) -> bool:
        """Write the outcomes of a plan's steps; return False if the plan's znodes changed concurrently.

        :param path: path of the totals.
        :param chunks: by path of the chunk, its data and True if its znode exists.
        """
        units: list[list[Operation]] = [
            [SetData(chunk, data, -1) if exists else Create(chunk, data)]
            for chunk, (data, exists) in chunks.items()
        ]
        errors = await self._write([*units, [SetData(path, totals, -1)]])
        return all(error is None for error in errors)

    async def rewrite_request(self, path: str, data: bytes | None, version: int) -> bool:
        """Replace a request, or remove it (None), at that version; return True on success.

        :raise ControllerMoved: another controller has been elected.
        """
        operation: Operation = Delete(path, version) if data is None else SetData(path, data, version)
        (error,) = await self._write([[operation]])
        return error is None

    async def _tree(self, *paths: str) -> list[str]:
        """Return the paths and everything below them, children first."""
        tree: list[str] = []
        level = list(paths)
        while level:
            tree = level + tree
            read_results = await list_all(self._client, level)
            level = [
                f"{parent}/{child}"
                for parent, children in zip(level, read_results, strict=True)
                if isinstance(children, list)
                for child in children
            ]
        return tree

    async def _write(self, units: list[list[Operation]]) -> list[ZooKeeperError | None]:
        """Write units of operations; return, for each unit, the conflicting error or None.

        :raise ControllerMoved: the check of the controller epoch failed.
        :raise ZooKeeperError: the outcome is unknown, because the connection or the session was lost.
        """
        errors = [o if isinstance(o, ZooKeeperError) else None for o in await self._outcomes(units)]
        for error in errors:
            if isinstance(error, GuardFailed):
                raise ControllerMoved("another controller has been elected") from error
            if error is not None and not isinstance(error, CONFLICTS):
                raise error
        return errors

    async def _outcomes(self, units: list[list[Operation]]) -> list[UnitOutcome]:
        return await write_units(self._client, units, guard=self._guard) if units else []


def guard_of_term(epoch_znode_version: int) -> Check:
    """Return the first check of every multi, which prevents a replaced controller from writing (KAFKA-3083)."""
    return Check(znodes.CONTROLLER_EPOCH, epoch_znode_version)


def _written(change: StateChange, shared: dict[tuple[Any, ...], LeaderAndIsr]) -> StateChange:
    """Return the change with its new partition epoch.

    :param shared: states by their values, so that partitions with equal states share one object.
    """
    previous, state = change.previous, change.state
    epoch = 0 if previous is None else previous.partition_epoch + 1
    values = (
        state.leader,
        state.leader_epoch,
        state.isr,
        state.controller_epoch,
        epoch,
        state.eligible_leader_replicas,
    )
    new_state = shared.get(values)
    if new_state is None:
        new_state = shared[values] = LeaderAndIsr(*values)
    return StateChange(change.partition, previous, new_state)


def _topic_operations(change: TopicChange) -> list[Operation]:
    operations: list[Operation] = [
        SetData(znodes.topic_path(change.assignment.topic), documents.encode_topic(change.assignment), change.version)
    ]
    for state in change.states:
        operations += _operations(state)
    for partition, last_state in change.removed_partitions:
        operations += [
            Delete(znodes.partition_state_path(*partition), last_state.partition_epoch),
            Delete(znodes.partition_path(*partition), -1),
        ]
    return operations + [Delete(path, -1) for path in change.requests]


def _operations(change: StateChange) -> list[Operation]:
    topic, partition = change.partition
    path = znodes.partition_state_path(topic, partition)
    data = documents.encode_partition_state(change.state)
    if change.previous is None:
        return [Create(znodes.partition_path(topic, partition), b""), Create(path, data)]
    return [SetData(path, data, change.previous.partition_epoch)]
