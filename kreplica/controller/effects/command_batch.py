"""Where commands to brokers are formed: at most one LeaderAndIsr, UpdateMetadata and StopReplica a broker and step.

(One that would be larger than ``COMMAND_BYTES_MAX`` is cut into several, which go one after the other.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kreplica.controller.effects.command_bodies import DELETE_WHATEVER_EPOCH, Bodies, Form, Piece, Row
from kreplica.controller.state.context import ControllerContext
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Api

__all__ = ["COMMAND_BYTES_MAX", "DELETE_WHATEVER_EPOCH", "BrokerRequests", "Command"]

COMMAND_BYTES_MAX = 16 * 1024 * 1024
"""A broker accepts requests of ``socket.request.max.bytes`` (100 MB), and has to hold one whole, parsed."""

PARTITION_BYTES_MAX = 512
"""What a command says of a partition, its topic's name and id counted too, with up to five replicas in each list."""


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One request to one broker.

    :param what: the partitions it speaks of, for the answer and for the log.
    :param form: builds its body, when it is sent.
    :param broker_epoch: of the process that it is for.
    """

    api: Api
    what: tuple[TopicPartition, ...]
    form: Form
    broker_epoch: int
    delete: bool = False

    @property
    def version(self) -> int:
        """The controller does not negotiate: brokers speak what the controller does (PROTOCOL of Kafka 3.9)."""
        return self.api.versions[1]


Send = Callable[[int, Command], None]


class BrokerRequests:
    """Gathers what one step of the controller tells the brokers, then sends it all.

    Made for a step, filled by it, sent once, thrown away.  The order to each broker is LeaderAndIsr, UpdateMetadata,
    StopReplica, as brokers expect it; to one that has just joined, UpdateMetadata comes first.

    :param send: queues a command on a broker's channel.
    :param bytes_max: of one command.
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
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._metadata: dict[int, dict[TopicPartition, None]] = {}
        self._stop: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._introduced: dict[int, None] = {}
        self._whole: dict[int, None] = {}

    def lead_or_follow(self, partition: TopicPartition, brokers: Iterable[int], *, is_new: bool = False) -> None:
        """Tell these brokers (those that live) a partition's state."""
        for broker in brokers:
            if broker in self._context.brokers:
                self._leader_and_isr[broker][partition] = is_new

    def publish(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Tell these brokers (all, where None) the metadata of these partitions (none: only who lives)."""
        partitions = dict.fromkeys(partitions)
        for broker in self._context.brokers if brokers is None else brokers:
            self._metadata.setdefault(broker, {}).update(partitions)

    def publish_all(self, brokers: Iterable[int] | None = None) -> None:
        """Tell these brokers (all, where None) all metadata: topics that they know of beside those are gone.

        Whoever should have told them that may have died before it could.  Where there are topics whose znodes cannot be
        read nothing is taken for gone.
        """
        context = self._context
        brokers = list(context.brokers if brokers is None else brokers)
        if not context.unreadable:
            self._whole.update(dict.fromkeys(brokers))
        self.publish([*context.leadership, *context.removed_partitions()], brokers)

    def introduce(self, brokers: Iterable[int]) -> None:
        """Tell brokers that have just joined all metadata, and that first: they need the endpoints of the leaders."""
        brokers = list(brokers)
        self._introduced.update(dict.fromkeys(brokers))
        self.publish_all(brokers)

    def stop(self, partition: TopicPartition, broker: int, *, delete: bool) -> None:
        """Tell a broker to stop a replica, and where asked to delete its files.

        What it was to be told of that replica before is left out: its partition may have no state any more.
        """
        if broker in self._context.brokers:
            self._leader_and_isr[broker].pop(partition, None)
            self._stop[broker][partition] = delete

    def send(self) -> None:
        """Queue the commands on the brokers' channels; what they say is what the context holds now."""
        bodies = Bodies(self._context, self._controller_id, self._listener)
        informed = sorted(self._metadata.keys() & self._context.brokers.keys())
        for broker in informed:
            if broker in self._introduced:
                self._send_metadata(broker, bodies)
        for broker in sorted(self._leader_and_isr):
            roles = self._leader_and_isr[broker]
            if not roles.keys() <= self._context.leadership.keys():
                raise KeyError("a broker is to be told of a partition that has no state")
            for part in self._cut(roles):
                self._queue(broker, LEADER_AND_ISR, part, bodies.leader_and_isr(broker, part, roles))
        for broker in informed:
            if broker not in self._introduced:
                self._send_metadata(broker, bodies)
        for broker in sorted(self._stop):
            self._send_stops(broker, bodies, self._stop[broker])

    def _send_metadata(self, broker: int, bodies: Bodies) -> None:
        parts = list(self._cut(self._metadata[broker])) or [()]
        for number, part in enumerate(parts):
            piece = Piece(number, len(parts)) if broker in self._whole else None
            self._queue(broker, UPDATE_METADATA, part, bodies.update_metadata(broker, part, piece))

    def _send_stops(self, broker: int, bodies: Bodies, stops: Mapping[TopicPartition, bool]) -> None:
        for delete in (False, True):
            for part in self._cut([partition for partition, deletes in stops.items() if deletes is delete]):
                self._queue(broker, STOP_REPLICA, part, bodies.stop_replica(broker, part, delete=delete), delete)

    def _queue(
        self, broker: int, api: Api, what: tuple[TopicPartition, ...], form: Form, delete: bool = False
    ) -> None:
        self._context.commands_count += 1
        numbered = _numbered(form, self._context.commands_count)
        self._send(broker, Command(api, what, numbered, self._context.brokers[broker].epoch, delete))

    def _cut(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, ...]]:
        """The partitions in parts that fit into one command each."""
        whole = tuple(partitions)
        size = max(self._bytes_max // PARTITION_BYTES_MAX, 1)
        return (whole[start : start + size] for start in range(0, len(whole), size))


def _numbered(form: Form, number: int) -> Form:
    """Commands grow in number: a broker leaves out one that was overtaken by a later one on another connection."""

    async def numbered(reactor: Reactor) -> Row:
        return await form(reactor) | {"command_number": number}

    return numbered
