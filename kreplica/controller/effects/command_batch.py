"""Batch of the commands that result from one step.

Each broker receives at most one LeaderAndIsr, one UpdateMetadata and two StopReplica requests: one deletes files, the
other does not.  A command larger than ``COMMAND_BYTES_MAX`` is split, and its parts are sent in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kreplica.controller.effects.command_bodies import DELETE_ANY_EPOCH, NOTHING_IS_NEW, Bodies, BodyBuilder, Piece, Row
from kreplica.controller.state.context import ControllerContext
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api

__all__ = ["COMMAND_BYTES_MAX", "DELETE_ANY_EPOCH", "Command", "CommandBatch"]

COMMAND_BYTES_MAX = 16 * 1024 * 1024
"""Size limit of a command: much less than ``socket.request.max.bytes`` (100 MB), because a parsed command takes more
memory than its encoded bytes.
"""

CHECKED_MAX = 10_000
"""Up to this many partitions, states are checked before a command is queued; above it, while the body is built."""

PARTITION_BYTES_MAX = 512
"""Estimated size of one partition in a command, with topic name and ID and up to five replicas in each list."""


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One request to one broker.

    :param partitions: the partitions in its body.
    :param build_body: builds the body when the command is sent.
    :param broker_epoch: epoch of the receiving process.
    :param delete: True for a StopReplica that deletes files.
    """

    api: Api
    partitions: tuple[TopicPartition, ...]
    build_body: BodyBuilder
    broker_epoch: int
    delete: bool = False

    @property
    def version(self) -> int:
        """The newest version, not negotiated: all brokers support it (as in Kafka 3.9)."""
        return self.api.versions[1]


Send = Callable[[int, Command], None]


class CommandBatch:
    """Collects the commands of one step, then sends them all; used once.

    The order for each broker is LeaderAndIsr, UpdateMetadata, StopReplica, as Kafka's brokers expect.  For a broker
    that has just joined, UpdateMetadata comes first.

    :param send: queues a command on a broker's channel.
    :param bytes_max: size limit of one command.
    """

    def __init__(
        self,
        context: ControllerContext,
        controller_id: int,
        listener: str,
        send: Send,
        bytes_max: int = COMMAND_BYTES_MAX,
    ) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = listener
        self._send = send
        self._bytes_max = bytes_max
        self._leader_and_isr: dict[int, dict[TopicPartition, None]] = defaultdict(dict)
        self._new: dict[int, set[TopicPartition]] = defaultdict(set)
        self._metadata: dict[int, dict[TopicPartition, None]] = {}
        self._stop: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._introduced: dict[int, None] = {}
        self._full_metadata: dict[int, None] = {}

    def lead_or_follow(self, partition: TopicPartition, brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Add a partition to LeaderAndIsr for each of these brokers that is live."""
        for broker in brokers:
            if broker in self._context.brokers:
                self._leader_and_isr[broker][partition] = None
                if is_new:
                    self._new[broker].add(partition)
                elif self._new:
                    self._new[broker].discard(partition)

    def publish(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Add partitions to UpdateMetadata for these brokers (all if None).

        UpdateMetadata also lists the live brokers, even if it contains no partitions.
        """
        added = dict.fromkeys(partitions)
        for broker in self._context.brokers if brokers is None else brokers:
            known = self._metadata.get(broker)
            # Shared by all brokers because it may contain 100,000 partitions; it is never changed.
            self._metadata[broker] = {**known, **added} if known and added else known or added

    def publish_all(self, brokers: Iterable[int] | None = None) -> None:
        """Add all metadata for these brokers (all if None), which then remove the topics that it does not contain.

        Needed because an earlier controller may have failed before it announced a deletion.  While topic znodes are
        unreadable, the brokers remove nothing.
        """
        context = self._context
        brokers = list(context.brokers if brokers is None else brokers)
        if not context.unreadable:
            self._full_metadata.update(dict.fromkeys(brokers))
        self.publish([*context.leadership, *context.removed_partitions()], brokers)

    def introduce(self, brokers: Iterable[int]) -> None:
        """Add all metadata for brokers that have just joined, before LeaderAndIsr: they need the leaders' endpoints."""
        brokers = list(brokers)
        self._introduced.update(dict.fromkeys(brokers))
        self.publish_all(brokers)

    def stop(self, partition: TopicPartition, broker: int, *, delete: bool) -> None:
        """Add a StopReplica for a replica, which also deletes its files if requested.

        Removes the replica from LeaderAndIsr in this batch, because its partition may no longer have a state.
        """
        if broker in self._context.brokers:
            self._leader_and_isr[broker].pop(partition, None)
            self._new[broker].discard(partition)
            self._stop[broker][partition] = delete

    def send(self) -> None:
        """Queue the commands on the channels; their bodies reflect the current context."""
        for _ in self._queue_parts():
            pass

    async def send_in_slices(self, yield_to_reactor: Callable[[], Awaitable[None]]) -> None:
        """Queue the commands like ``send``, for batches with many partitions; their order is the same.

        :param yield_to_reactor: called between two commands, which must not change the context.
        """
        for _ in self._queue_parts():
            await yield_to_reactor()

    def _queue_parts(self) -> Iterator[None]:
        """Queue one command after another; the first step copies the context."""
        bodies = Bodies(self._context, self._controller_id, self._listener)
        yield
        informed = sorted(self._metadata.keys() & self._context.brokers.keys())
        for broker in informed:
            if broker in self._introduced:
                yield from self._send_metadata(broker, bodies)
        for broker in sorted(self._leader_and_isr):
            roles, new = self._leader_and_isr[broker], self._new.get(broker, NOTHING_IS_NEW)
            if len(roles) <= CHECKED_MAX and not roles.keys() <= self._context.leadership.keys():
                raise KeyError("LeaderAndIsr for a partition without a state")
            for part in self._split(roles):
                self._queue(broker, LEADER_AND_ISR, part, bodies.leader_and_isr(broker, part, new))
                yield
        for broker in informed:
            if broker not in self._introduced:
                yield from self._send_metadata(broker, bodies)
        for broker in sorted(self._stop):
            self._send_stops(broker, bodies, self._stop[broker])

    def _send_metadata(self, broker: int, bodies: Bodies) -> Iterator[None]:
        parts = list(self._split(self._metadata[broker])) or [()]
        for number, part in enumerate(parts):
            piece = Piece(number, len(parts)) if broker in self._full_metadata else None
            self._queue(broker, UPDATE_METADATA, part, bodies.update_metadata(broker, part, piece))
            yield

    def _send_stops(self, broker: int, bodies: Bodies, stops: Mapping[TopicPartition, bool]) -> None:
        for delete in (False, True):
            for part in self._split([partition for partition, deletes in stops.items() if deletes is delete]):
                self._queue(broker, STOP_REPLICA, part, bodies.stop_replica(broker, part, delete=delete), delete)

    def _queue(
        self, broker: int, api: Api, partitions: tuple[TopicPartition, ...], build: BodyBuilder, delete: bool = False
    ) -> None:
        self._context.commands_count += 1
        numbered = _with_number(build, self._context.commands_count)
        self._send(broker, Command(api, partitions, numbered, self._context.brokers[broker].epoch, delete))

    def _split(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, ...]]:
        """Split the partitions into parts that each fit in one command."""
        whole = tuple(partitions)
        size = max(self._bytes_max // PARTITION_BYTES_MAX, 1)
        return (whole[start : start + size] for start in range(0, len(whole), size))


def _with_number(build: BodyBuilder, number: int) -> BodyBuilder:
    """Add the command's number, so that a broker can reject a command that arrives after a later one."""

    async def numbered(reactor: Reactor) -> Row:
        return await build(reactor) | {"command_number": number}

    return numbered
