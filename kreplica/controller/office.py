"""What a broker has only while it is the controller: the context, its writes, its channels to the brokers.

Made by winning the election, thrown away by resigning, so that nothing of an old term can leak into the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.broker_requests import BrokerRequests, Command
from kreplica.controller.channels import BrokerChannel
from kreplica.controller.context import ControllerContext
from kreplica.controller.decisions import StateChange
from kreplica.controller.events import BrokersChanged, CommandRefused, Event, ReplicasStopped
from kreplica.controller.state_writes import StateWrites
from kreplica.controller.states import PartitionState
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, BrokerRegistration, TopicPartition
from kreplica.runtime import Runtime
from kreplica.zookeeper import ZooKeeperClient, read_all

log = Logger()


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller is told once.

    :param listener: the name of the listener by which brokers speak to each other.
    :param unclean_allowed: whether a topic's settings allow a replica that is not in sync to lead.
    :param request_timeout_s: how long a broker may take to answer one command.
    """

    broker_id: int
    listener: str
    unclean_allowed: Callable[[str], bool]
    request_timeout_s: float = 30.0


class Office:
    """The state of one term.  Event handlers (``topics``, ``brokers``, ``failover``) work on it, one at a time."""

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        config: ControllerConfig,
        context: ControllerContext,
        put: Callable[[Event], None],
    ) -> None:
        self.runtime = runtime
        self.client = client
        self.config = config
        self.context = context
        self.put = put
        self.writes = StateWrites(client, context.epoch_znode_version)
        self._channels: dict[int, BrokerChannel] = {}
        self._timers: dict[Event, IDelayedCall] = {}

    # --- brokers -----------------------------------------------------------------------------------------------------

    def open_channel(self, registration: BrokerRegistration) -> None:
        """Start to speak to a broker that has joined; one without the brokers' listener is left out, and logged."""
        endpoint = registration.endpoint(self.config.listener)
        if endpoint is None:
            log.error(
                "controller: broker {broker} has no listener {listener}, so it cannot be told anything; it has {known}",
                broker=registration.broker_id,
                listener=self.config.listener,
                known=", ".join(map(str, registration.endpoints)) or "none",
            )
            return
        self._channels[registration.broker_id] = BrokerChannel(
            self.runtime.reactor,
            self.runtime.random,
            registration,
            endpoint,
            client_id=f"controller-{self.config.broker_id}",
            timeout_s=self.config.request_timeout_s,
            answered=self._answered,
            overflowed=self._overflowed,
        )

    async def close_channel(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Resign: close every channel, whatever waits in them."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for broker_id in list(self._channels):
            await self.close_channel(broker_id)

    def put_later(self, event: Event, seconds: float) -> None:
        """Queue an event after a while; one that is on its way already stands for both."""

        def due() -> None:
            del self._timers[event]
            self.put(event)

        if event not in self._timers:
            self._timers[event] = self.runtime.reactor.callLater(seconds, due)

    def requests(self) -> BrokerRequests:
        """A fresh batch for this step."""
        return BrokerRequests(self.context, self.config.broker_id, self.config.listener, self._send)

    def _send(self, broker_id: int, command: Command) -> None:
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(command)

    def _overflowed(self, broker_id: int) -> None:
        # Seen as a broker that bounced: the next look at /brokers/ids finds another epoch and tells it everything.
        known = self.context.brokers.get(broker_id)
        if known is not None:
            self.context.brokers[broker_id] = replace(known, epoch=-1)
        self.put(BrokersChanged())

    def _answered(self, broker_id: int, command: Command, answer: dict[str, Any]) -> None:
        errors = _errors(self.context, command, answer)
        if command.api.name == "StopReplica":
            deleted = [p for p in command.what if p.topic in self.context.deleting]
            if deleted:
                results = tuple((p, errors.get(p, ErrorCode.NONE)) for p in deleted)
                self.put(ReplicasStopped(broker_id, command.delete, results))
        elif errors:
            self.put(CommandRefused(broker_id, command.api.name, tuple(errors.items())))

    # --- states ------------------------------------------------------------------------------------------------------

    async def apply(self, changes: Sequence[StateChange], requests: BrokerRequests) -> list[TopicPartition]:
        """Write the states, put what succeeded into the context, and form the requests that follow from it.

        :return: the partitions whose change was refused; their states have been read anew, so that the caller may
            decide again.
        """
        outcome = await self.writes.write_states(changes)
        for change in outcome.written:
            self._adopt(change)
            replicas = self.context.replicas(change.partition)
            requests.lead_or_follow(change.partition, replicas, is_new=change.is_new)
            requests.publish([change.partition])
        for refused in outcome.refused:
            log.warn(
                "controller: the state of {partition} was not written: {error}",
                partition=str(refused.change.partition),
                error=str(refused.error),
            )
        await self.read_states([refused.change.partition for refused in outcome.refused])
        return [refused.change.partition for refused in outcome.refused]

    def _adopt(self, change: StateChange) -> None:
        self.context.leadership[change.partition] = change.state
        online = change.state.leader != NO_LEADER
        self.context.move_partition(change.partition, PartitionState.ONLINE if online else PartitionState.OFFLINE)

    async def read_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read the state znodes of these partitions into the context.

        :return: in which transaction (zxid) each was last written; those that have none or cannot be read are left out.
        """
        written: dict[TopicPartition, int] = {}
        wanted = list(partitions)
        paths = [znodes.partition_state_path(*partition) for partition in wanted]
        answers = await read_all(self.client, paths)
        for partition, path, answer in zip(wanted, paths, answers, strict=True):
            if isinstance(answer, tuple):
                data, stat = answer
                try:
                    self.context.leadership[partition] = znodes.decode_partition_state(path, data, stat.version)
                    written[partition] = stat.mzxid
                except znodes.ZnodeError as error:
                    log.error("controller: a state that cannot be read is left alone: {error}", error=str(error))
        return written


def _errors(context: ControllerContext, command: Command, answer: dict[str, Any]) -> dict[TopicPartition, ErrorCode]:
    """The errors in a broker's answer, by partition; an error for the whole request counts for each of them."""
    whole = answer["error_code"]
    if whole:
        return dict.fromkeys(command.what, ErrorCode(whole))
    found: dict[TopicPartition, ErrorCode] = {}
    names = {assignment.topic_id: topic for topic, assignment in context.topics.items()} if "topics" in answer else {}
    groups = [(names.get(t["topic_id"]), t["partition_errors"]) for t in answer.get("topics") or ()]
    groups.append((None, answer.get("partition_errors") or ()))
    for topic, rows in groups:
        for row in rows:
            name = topic or row.get("topic_name")
            if row["error_code"] and name:
                found[TopicPartition(name, row["partition_index"])] = ErrorCode(row["error_code"])
    return found

