"""Where the controller writes ZooKeeper: every write is a multi that checks the version of ``/controller_epoch``.

A write that fails stays out of the context: the caller gets it back with the reason, and decides anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, cast

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions.decisions import StateChange
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

PART = 1000
"""States that are formed in one turn of the reactor, and go into one multi where they fit."""

PARTS_IN_FLIGHT_MAX = 16

log = Logger()

CONFLICTS = (BadVersion, NoNode, NodeExists, NotEmpty)
"""Errors that say that somebody else wrote; whatever else goes wrong leaves the outcome unknown."""


class MultiClient(MultiReader, MultiWriter, Protocol):
    """ZooKeeper client that sends several operations, or several reads, in one request."""


class ControllerMoved(KreplicaError):
    """Another broker is the controller: its epoch is in ``/controller_epoch``, and nothing more may be written."""


class Refused(NamedTuple):
    """A change that ZooKeeper refused, and why (somebody else wrote first)."""

    change: StateChange
    error: ZooKeeperError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step's writes."""

    written: tuple[StateChange, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic's znode to be replaced, and what happens with it or not at all.

    :param version: the znode's version that the change was decided from.
    :param states: of partitions that stay.
    :param ends: partitions that are no more, with the state that each had.
    :param requests: znodes that asked for it.
    """

    assignment: TopicAssignment
    version: int
    states: tuple[StateChange, ...] = ()
    ends: tuple[tuple[TopicPartition, LeaderAndIsr], ...] = ()
    requests: tuple[str, ...] = ()


class StateWrites:
    """Writes under one controller epoch.

    :param epoch_znode_version: the version of ``/controller_epoch`` that this controller got at its election.
    :param breathe: lets others have a turn of the reactor, where this one has lasted long enough.
    """

    def __init__(
        self, client: MultiClient, epoch_znode_version: int, breathe: Callable[[], Awaitable[None]]
    ) -> None:
        self._client = client
        self._breathe = breathe
        self._guard = guard_of_term(epoch_znode_version)

    async def write_states(self, changes: Sequence[StateChange]) -> Outcome:
        """Write the states of many partitions in as few multis as the size limit allows.

        Multis leave while the next are formed, and do not wait for each other.

        :return: what was written, with the new partition epochs, and what was refused.
        :raise ControllerMoved: nothing more may be written.
        """
        errors: dict[int, list[ZooKeeperError | None]] = {}
        running: list[Deferred[None]] = []

        async def write(start: int) -> None:
            errors[start] = await self._write([_operations(change) for change in changes[start : start + PART]])

        try:
            for number, start in enumerate(range(0, len(changes), PART)):
                running.append(Deferred.fromCoroutine(write(start)))
                await self._breathe()
                if number >= PARTS_IN_FLIGHT_MAX:
                    await running[number - PARTS_IN_FLIGHT_MAX]
        finally:
            ended = DeferredList(running, consumeErrors=True)
        for succeeded, failure in await ended:
            if not succeeded:
                cast(Failure, failure).raiseException()
        return await self._outcome(changes, [error for start in sorted(errors) for error in errors[start]])

    async def _outcome(self, changes: Sequence[StateChange], errors: Sequence[ZooKeeperError | None]) -> Outcome:
        written: list[StateChange] = []
        refused: list[Refused] = []
        for number, (change, error) in enumerate(zip(changes, errors, strict=True), 1):
            if error is None:
                written.append(_written(change))
            else:
                refused.append(Refused(change, error))
            if number % PART == 0:
                await self._breathe()
        return Outcome(tuple(written), tuple(refused))

    async def write_topics(self, changes: Sequence[TopicChange]) -> list[TopicChange]:
        """Replace topics' znodes, each with all that belongs to its change.

        :return: the changes that were written, their states with the new partition epochs; where one is missing,
            somebody else wrote one of its znodes first.
        :raise ControllerMoved: nothing more may be written.
        """
        results = await self._write([_topic_operations(change) for change in changes])
        return [
            replace(change, states=tuple(map(_written, change.states)))
            for change, error in zip(changes, results, strict=True)
            if error is None
        ]

    async def create_partition_parents(self, topics: Iterable[str]) -> None:
        """Make ``/brokers/topics/T/partitions`` where it is absent (a half-done creation left it)."""
        topics = list(topics)
        errors = await self._write([[Create(znodes.partitions_path(topic), b"")] for topic in topics])
        for error in errors:
            if error is not None and not isinstance(error, (NodeExists, NoNode)):
                raise error

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic's tree, its settings, what was asked of its partitions, and last the request to delete it."""
        paths = await self._tree(
            znodes.topic_path(topic), znodes.partitions_add_path(topic), znodes.partitions_remove_path(topic)
        )
        paths += [znodes.config_path("topics", topic)]
        # Children first.  One unit a path: what is gone already does not hold the rest back.
        errors = await self._write([[Delete(path, -1)] for path in paths])
        failed = next((e for e in errors if e is not None and not isinstance(e, NoNode)), None)
        if failed is not None:
            raise failed
        await self.remove([znodes.delete_topic_path(topic)])

    async def write_broker_epochs(self, epochs: Mapping[int, int]) -> None:
        """Note which processes of brokers were dealt with, for the next controller."""
        (error,) = await self._write([[SetData(znodes.BROKER_EPOCHS, documents.encode_broker_epochs(epochs), -1)]])
        if error is not None:
            log.error("controller: {path} is not there; start any broker anew", path=znodes.BROKER_EPOCHS)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove znodes that have done their work (requests, notifications), children before parents.

        One that is gone already is fine, and so is one that has children again.
        """
        for error in await self._write([[Delete(path, -1)] for path in paths]):
            if error is not None and not isinstance(error, (NoNode, NotEmpty)):
                raise error

    async def remove_tree(self, path: str) -> None:
        """Remove a znode and all below it; what is gone already is fine."""
        await self.remove(await self._tree(path))

    async def ask(self, requests: Mapping[str, bytes]) -> None:
        """Make request znodes, and the znodes of their topics; those that are there already say the same.

        :param requests: data by path.
        """
        parents = sorted({path.rpartition("/")[0] for path in requests})
        errors = await self._write([[Create(path, b"")] for path in parents])
        errors += await self._write([[Create(path, data)] for path, data in requests.items()])
        for error in errors:
            if error is not None and not isinstance(error, NodeExists):
                raise error

    async def put(self, path: str, data: bytes) -> None:
        """Replace what a znode holds that is always there (``znodes.PERSISTENT_PATHS``), or make it."""
        (error,) = await self._write([[SetData(path, data, -1)]])
        if error is not None:
            await self._write([[Create(path, data)]])

    async def note_progress(self, path: str, totals: bytes, chunks: Mapping[str, tuple[bytes, bool]]) -> bool:
        """Write what has become of a plan's steps; whether its znodes were there.

        :param path: of the totals.
        :param chunks: by path the data, and whether the znode is there already.
        """
        units: list[list[Operation]] = [
            [SetData(chunk, data, -1) if is_there else Create(chunk, data)]
            for chunk, (data, is_there) in chunks.items()
        ]
        errors = await self._write([*units, [SetData(path, totals, -1)]])
        return all(error is None for error in errors)

    async def rewrite_request(self, path: str, data: bytes | None, version: int) -> bool:
        """Replace what is left of a request, or remove it (None), where it still has that version; whether it had.

        :raise ControllerMoved: nothing more may be written.
        """
        operation: Operation = Delete(path, version) if data is None else SetData(path, data, version)
        (error,) = await self._write([[operation]])
        return error is None

    async def _tree(self, *paths: str) -> list[str]:
        """The paths and all below them, children before parents."""
        found: list[str] = []
        level = list(paths)
        while level:
            found = level + found
            answers = await list_all(self._client, level)
            level = [
                f"{parent}/{child}"
                for parent, children in zip(level, answers, strict=True)
                if isinstance(children, list)
                for child in children
            ]
        return found

    async def _write(self, units: list[list[Operation]]) -> list[ZooKeeperError | None]:
        """What each unit was refused with, or None.

        :raise ControllerMoved: where the guard failed.
        :raise ZooKeeperError: where it is not known what was written (the connection or the session was lost).
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
    """What stands at the head of every multi: a controller that was replaced writes nothing (KAFKA-3083)."""
    return Check(znodes.CONTROLLER_EPOCH, epoch_znode_version)


def _written(change: StateChange) -> StateChange:
    """The change with the partition epoch that its state has now (written out: dataclasses.replace takes 3 us)."""
    partition, previous, state = change.partition, change.previous, change.state
    epoch = 0 if previous is None else previous.partition_epoch + 1
    now = LeaderAndIsr(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.controller_epoch,
        epoch,
        state.eligible_leader_replicas,
    )
    return StateChange(partition, previous, now)


def _topic_operations(change: TopicChange) -> list[Operation]:
    operations: list[Operation] = [
        SetData(znodes.topic_path(change.assignment.topic), documents.encode_topic(change.assignment), change.version)
    ]
    for state in change.states:
        operations += _operations(state)
    for partition, ended in change.ends:
        operations += [
            Delete(znodes.partition_state_path(*partition), ended.partition_epoch),
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
