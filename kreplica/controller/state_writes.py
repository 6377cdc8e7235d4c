"""Where the controller writes ZooKeeper: every write is a multi that checks the version of ``/controller_epoch``.

A write that fails stays out of the context: the caller gets it back with the reason, and decides anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kreplica.cluster import znodes
from kreplica.controller.decisions import StateChange
from kreplica.errors import KreplicaError
from kreplica.model import TopicAssignment
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
    ZooKeeperClient,
    ZooKeeperError,
    list_all,
    write_units,
)

CONFLICTS = (BadVersion, NoNode, NodeExists, NotEmpty)
"""Errors that say that somebody else wrote; whatever else goes wrong leaves the outcome unknown."""


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


class StateWrites:
    """Writes under one controller epoch.

    :param epoch_znode_version: the version of ``/controller_epoch`` that this controller got at its election.
    """

    def __init__(self, client: ZooKeeperClient, epoch_znode_version: int) -> None:
        self._client = client
        self._guard = Check(znodes.CONTROLLER_EPOCH, epoch_znode_version)

    async def write_states(self, changes: Sequence[StateChange]) -> Outcome:
        """Write the states of many partitions in as few multis as the size limit allows.

        :return: what was written, with the new partition epochs, and what was refused.
        :raise ControllerMoved: nothing more may be written.
        """
        results = await self._write([_operations(change) for change in changes])
        written, refused = [], []
        for change, error in zip(changes, results, strict=True):
            if error is not None:
                refused.append(Refused(change, error))
            else:
                epoch = 0 if change.previous is None else change.previous.partition_epoch + 1
                written.append(replace(change, state=replace(change.state, partition_epoch=epoch)))
        return Outcome(tuple(written), tuple(refused))

    async def write_topic(self, assignment: TopicAssignment, version: int) -> bool:
        """Replace a topic's znode where it still has that version; whether that was so.

        :raise ControllerMoved: nothing more may be written.
        """
        path = znodes.topic_path(assignment.topic)
        (error,) = await self._write([[SetData(path, znodes.encode_topic(assignment), version)]])
        return error is None

    async def create_partition_parents(self, topics: Iterable[str]) -> None:
        """Make ``/brokers/topics/T/partitions`` where it is absent (a half-done creation left it)."""
        topics = list(topics)
        errors = await self._write([[Create(znodes.partitions_path(topic), b"")] for topic in topics])
        for error in errors:
            if error is not None and not isinstance(error, (NodeExists, NoNode)):
                raise error

    async def delete_topic(self, topic: str) -> None:
        """Remove a topic's tree, its settings, and last the request to delete it."""
        paths = await self._tree(znodes.topic_path(topic))
        paths += [znodes.config_path("topics", topic)]
        # Children first.  One unit a path: what is gone already does not hold the rest back.
        errors = await self._write([[Delete(path, -1)] for path in paths])
        failed = next((e for e in errors if e is not None and not isinstance(e, NoNode)), None)
        if failed is not None:
            raise failed
        await self.remove([znodes.delete_topic_path(topic)])

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove znodes that have done their work (requests, notifications); one that is gone already is fine."""
        for error in await self._write([[Delete(path, -1)] for path in paths]):
            if error is not None and not isinstance(error, NoNode):
                raise error

    async def _tree(self, path: str) -> list[str]:
        """The path and all below it, children before parents."""
        found: list[str] = []
        level = [path]
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


def _operations(change: StateChange) -> list[Operation]:
    topic, partition = change.partition
    path = znodes.partition_state_path(topic, partition)
    data = znodes.encode_partition_state(change.state)
    if change.previous is None:
        return [Create(znodes.partition_path(topic, partition), b""), Create(path, data)]
    return [SetData(path, data, change.previous.partition_epoch)]
