"""Bodies of commands; each partition is encoded once, regardless of how many brokers receive it.

A step may send 10,000 partitions to three brokers.  The bytes of a partition are the same for all of them: they are
built for the first command and cached until the last one is sent.  Commands are assembled from these bytes
(``wire.primitives.PrebuiltElements``) in slices of a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence, Set
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredLock

from kreplica.controller.state.context import ControllerContext
from kreplica.model import LEADER_DURING_DELETE, NO_LEADER, ZERO_UUID, LeaderAndIsr, TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api
from kreplica.wire.primitives import PrebuiltElements
from kreplica.wire.schema import MessageBuilder

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

INCREMENTAL, FULL = 0, 2
"""Types of UpdateMetadata: add to the receiver's metadata, or replace all of it (FULL in KIP-866)."""

DELETE_ANY_EPOCH = -2
"""Leader epoch in StopReplica that overrides every known epoch, for deleted topics and partitions."""

SLICE_SECONDS_MAX = 0.004
"""Time after which code that builds a command yields to the reactor."""

ROWS_AT_ONCE = 64
"""Number of partitions encoded between two checks of the clock."""

LOOKUPS_MAX = 10_000
"""Maximum number of partitions whose leaders are looked up, which takes 2 ms."""

_NUMBER = Struct(">i")

RECENT_MAX = 3
"""Number of assembled bodies cached in addition to the newest, for brokers that receive the same partitions."""

Row = dict[str, Any]
Values = tuple[Any, ...]
Partitions = tuple[TopicPartition, ...]
BodyBuilder = Callable[[Reactor], Coroutine[Deferred[Any], Any, Row]]
"""Builds the body of a command without blocking the reactor; called each time the command is sent."""


class Piece(NamedTuple):
    """Position of a command in the sequence of commands that contains all metadata; numbers start at 0."""

    number: int
    pieces_count: int


NOTHING_IS_NEW: Set[TopicPartition] = frozenset()


class Bodies:
    """Builds the bodies of the commands of one step from a snapshot of the context."""

    def __init__(self, context: ControllerContext, controller_id: int, listener: str) -> None:
        self._context = _copy(context)  # later steps change the context before the commands are sent
        self._controller_id = controller_id
        self._listener = listener
        # The rows do not refer to this object: a reference cycle would keep the bytes of all partitions in memory.
        role_values, stop_values = partial(_role_values, self._context), partial(_stop_values, self._context)
        self._roles = _Rows(LEADER_AND_ISR, role_values, partial(_role, is_new=False))
        self._new_roles = _Rows(LEADER_AND_ISR, role_values, partial(_role, is_new=True))
        self._metadata = _Rows(UPDATE_METADATA, partial(_metadata_values, self._context), _metadata)
        self._stops = _Rows(STOP_REPLICA, stop_values, partial(_stop, delete=False))
        self._deletions = _Rows(STOP_REPLICA, stop_values, partial(_stop, delete=True))
        self._one_at_a_time = DeferredLock()
        self._recent: list[tuple[_Rows, Partitions, Set[TopicPartition], PrebuiltElements]] = []
        """Recently assembled parts; usually the next broker receives the same partitions."""

    def leader_and_isr(self, broker: int, partitions: Partitions, new: Set[TopicPartition]) -> BodyBuilder:
        """Return a builder of the body of LeaderAndIsr.

        :param new: the partitions that are new to the brokers.
        """

        async def build(reactor: Reactor) -> Row:
            return self._head(broker) | {
                "type": 0,
                "topic_states": await self._topics(reactor, self._roles, partitions, new),
                "live_leaders": self._live_leaders(self._leaders(partitions)),
            }

        return build

    def update_metadata(self, broker: int, partitions: Partitions, piece: Piece | None = None) -> BodyBuilder:
        """Return a builder of the body of UpdateMetadata.

        :param partitions: empty to send only the live brokers.
        :param piece: position within all metadata; None to add these partitions to the receiver's metadata.
        """
        kind = {"type": INCREMENTAL}
        if piece is not None:
            kind = {"type": FULL, "part": piece.number, "parts": piece.pieces_count}

        async def build(reactor: Reactor) -> Row:
            return self._head(broker) | kind | {
                "topic_states": await self._topics(reactor, self._metadata, partitions),
                "live_brokers": self._live_brokers(),
            }

        return build

    def stop_replica(self, broker: int, partitions: Partitions, *, delete: bool) -> BodyBuilder:
        """Return a builder of the body of StopReplica.

        :param delete: True to delete the files too.
        """
        stops = self._deletions if delete else self._stops

        async def build(reactor: Reactor) -> Row:
            return self._head(broker) | {"topic_states": await self._topics(reactor, stops, partitions)}

        return build

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _topics(
        self,
        reactor: Reactor,
        rows: _Rows,
        partitions: Partitions,
        new: Set[TopicPartition] = NOTHING_IS_NEW,
    ) -> PrebuiltElements:
        """Return the ``topic_states`` of a command."""
        await self._one_at_a_time.acquire()  # concurrent callers then find the cached result
        try:
            for recent_rows, recent_partitions, recent_new, built in self._recent:
                if recent_rows is rows and recent_partitions == partitions and recent_new == new:
                    return built
            built = await self._assemble(reactor, rows, partitions, new)
            self._recent = [*self._recent[-RECENT_MAX:], (rows, partitions, new, built)]
            return built
        finally:
            self._one_at_a_time.release()

    def _leaders(self, partitions: Partitions) -> Collection[int]:
        """Return the leaders of these partitions, or all live brokers if there are too many partitions to look up."""
        if len(partitions) > LOOKUPS_MAX:
            return self._context.brokers.keys()
        return {self._context.leadership[partition].leader for partition in partitions}

    async def _assemble(
        self, reactor: Reactor, rows: _Rows, partitions: Partitions, new: Set[TopicPartition]
    ) -> PrebuiltElements:
        by_topic: dict[str, list[bytes]] = {}
        slice_ends_s = reactor.seconds() + SLICE_SECONDS_MAX
        for number, partition in enumerate(partitions, 1):
            built = (self._new_roles if partition in new else rows).of(partition)
            by_topic.setdefault(partition.topic, []).append(built)
            if number % ROWS_AT_ONCE == 0 and reactor.seconds() > slice_ends_s:
                await pause(reactor, 0)
                slice_ends_s = reactor.seconds() + SLICE_SECONDS_MAX
        topics = [
            rows.topic(
                {
                    "topic_name": topic,
                    "topic_id": self._topic_id(topic),
                    "partition_states": PrebuiltElements(len(built_rows), built_rows),
                }
            )
            for topic, built_rows in by_topic.items()
        ]
        return PrebuiltElements(len(topics), topics)

    def _head(self, broker: int) -> Row:
        return {
            "controller_id": self._controller_id,
            "is_k_raft_controller": False,
            "controller_epoch": self._context.controller_epoch,
            "broker_epoch": self._context.brokers[broker].epoch,
        }

    def _live_leaders(self, leaders: Collection[int]) -> list[Row]:
        rows = []
        for leader in sorted(self._context.brokers.keys() & leaders):
            endpoint = self._context.brokers[leader].endpoint(self._listener)
            if endpoint is not None:
                rows.append({"broker_id": leader, "host_name": endpoint.host, "port": endpoint.port})
        return rows

    def _live_brokers(self) -> list[Row]:
        return [
            {
                "id": registration.broker_id,
                "endpoints": [
                    {
                        "host": endpoint.host,
                        "port": endpoint.port,
                        "listener": endpoint.listener,
                        "security_protocol": SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol, 0),
                    }
                    for endpoint in registration.endpoints
                ],
                "rack": registration.rack,
            }
            for _, registration in sorted(self._context.brokers.items())
        ]

    def _topic_id(self, topic: str) -> Any:
        assignment = self._context.topics.get(topic)
        return assignment.topic_id if assignment else ZERO_UUID


def _copy(context: ControllerContext) -> ControllerContext:
    """Return a snapshot for building commands; values are immutable, so copying 100,000 states takes a millisecond."""
    copy = ControllerContext(context.controller_epoch, context.epoch_znode_version)
    copy.brokers = dict(context.brokers)
    copy.topics = dict(context.topics)
    copy.leadership = dict(context.leadership)
    copy.deleting = set(context.deleting)
    copy.failed_replicas = {broker: set(partitions) for broker, partitions in context.failed_replicas.items()}
    return copy


def _role_values(context: ControllerContext, partition: TopicPartition) -> Values:
    topic, number = partition
    assignment = context.topics[topic]
    replicas = assignment.partitions.get(number, ())
    removing = tuple([r for r in assignment.removing.get(number, ()) if r in replicas])
    adding = tuple(assignment.adding.get(number, ()))
    return context.leadership[partition], replicas, adding, removing, number in assignment.read_only


def _metadata_values(context: ControllerContext, partition: TopicPartition) -> Values:
    state = context.leadership.get(partition)
    replicas = context.replicas(partition)
    if state is None:
        state = LeaderAndIsr(NO_LEADER, 0, (), context.controller_epoch)
    is_deleted = partition.topic in context.deleting or not replicas
    return state, replicas, context.offline_replicas(partition), is_deleted


def _stop_values(context: ControllerContext, partition: TopicPartition) -> Values:
    state = context.leadership.get(partition)
    ignores_epoch = state is None or partition.topic in context.deleting
    return (DELETE_ANY_EPOCH if state is None or ignores_epoch else state.leader_epoch,)


def _role(
    state: LeaderAndIsr,
    replicas: Sequence[int],
    adding: Sequence[int],
    removing: Sequence[int],
    read_only: bool,
    *,
    is_new: bool,
) -> Row:
    return {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "partition_epoch": state.partition_epoch,
        "replicas": replicas,
        "adding_replicas": adding,
        "removing_replicas": removing,
        "is_new": is_new,
        "leader_recovery_state": 0,
        "eligible_leader_replicas": list(state.eligible_leader_replicas),
        "read_only": read_only,
    }


def _metadata(state: LeaderAndIsr, replicas: Sequence[int], offline: Sequence[int], is_deleted: bool) -> Row:
    return {
        "controller_epoch": state.controller_epoch,
        "leader": LEADER_DURING_DELETE if is_deleted else state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": () if is_deleted else state.isr,
        "zk_version": state.partition_epoch,
        "replicas": replicas,
        "offline_replicas": offline,
    }


def _stop(leader_epoch: int, *, delete: bool) -> Row:
    return {"leader_epoch": leader_epoch, "delete_partition": delete}


class _Rows:
    """Encoded partitions of one kind of command, each built once.

    Most partitions of a step differ only in their number, which is the first field: the bytes after it are built once
    for equal values.

    :param values: returns the values of a partition that its other fields depend on.
    :param row: returns the fields for these values.
    """

    def __init__(self, api: Api, values: Callable[[TopicPartition], Values], row: Callable[..., Row]) -> None:
        version = api.versions[1]
        self.topic: MessageBuilder = api.request.element(version, "topic_states")
        self._build = api.request.element(version, "topic_states", "partition_states")
        self._values = values
        self._row = row
        self._built: dict[TopicPartition, bytes] = {}
        self._tails: dict[Values, bytes] = {}

    def of(self, partition: TopicPartition) -> bytes:
        built = self._built.get(partition)
        if built is None:
            values = self._values(partition)
            tail = self._tails.get(values)
            if tail is None:
                fields = self._row(*values)
                tail = self._tails[values] = self._build({"partition_index": 0, **fields})[_NUMBER.size :]
            built = self._built[partition] = _NUMBER.pack(partition.partition) + tail
        return built
