"""A light broker with a controller: it applies commands and, as a leader, adds replicas to the ISR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.controller.effects.command_batch import Command
from kreplica.model import LeaderAndIsr
from kreplica.replication.leader.isr_notifications import IsrNotifications
from kreplica.runtime.pause import pause
from kreplica.testing.designs.clients import DeferredClient
from kreplica.testing.designs.layout import Layout, Partition
from kreplica.testing.designs.light_broker import LightBroker
from kreplica.testing.simulator.reactor import SimulatedReactor
from kreplica.testing.simulator.scheduler import Process
from kreplica.wire.messages import LEADER_AND_ISR
from kreplica.zookeeper import SetData, Stat, write_units

BATCH_MAX = 1000
"""Maximum number of partitions in a batch, as in ``kreplica.replication.leader.isr_writes``."""


class CommandedBroker:
    """The product's command handling and ISR writes, reduced to their messages.

    Like the product, it writes the ISRs of up to 1,000 partitions in one batch of conditional writes, and then notifies
    the controller.
    """

    def __init__(
        self, broker: LightBroker, client: DeferredClient, layout: Layout, reactor: SimulatedReactor
    ) -> None:
        self._broker = broker
        self._client = client
        self._layout = layout
        self._reactor = reactor
        self._states: dict[Partition, LeaderAndIsr] = {}
        self._joining: dict[Partition, set[int]] = {}
        self._caught_up: dict[Partition, set[int]] = {}
        """Followers that have caught up with this broker as leader."""
        self._notifications = IsrNotifications(reactor, client)
        self._writing = False

    @property
    def process(self) -> Process:
        return self._broker.process

    # --- commands ----------------------------------------------------------------------------------------------------

    def handle_command(self, command: Command, body: bytes) -> None:
        """Apply LeaderAndIsr or StopReplica."""
        message = command.api.request.parse(command.version, body)
        for topic in message["topic_states"]:
            for row in topic["partition_states"]:
                partition = self._layout.find(topic["topic_name"], row["partition_index"])
                if partition is None:
                    continue
                if command.api is LEADER_AND_ISR:
                    self._take_role(partition, row)
                else:
                    self._stop(partition, delete=row["delete_partition"])

    def _take_role(self, partition: Partition, row: dict[str, Any]) -> None:
        state = LeaderAndIsr(
            row["leader"], row["leader_epoch"], tuple(row["isr"]), row["controller_epoch"], row["partition_epoch"]
        )
        before = self._states.get(partition)
        self._states[partition] = state
        self._joining.pop(partition, None)
        if before is None or before.leader_epoch != state.leader_epoch:
            self._caught_up.pop(partition, None)
        if state.leader == self._broker.broker_id:
            self._broker.lead(partition, state.leader_epoch)
            self._propose(partition)
        elif state.leader >= 0:
            self._broker.follow(partition, state.leader, state.leader_epoch)
        else:
            self._broker.stop(partition)

    def _stop(self, partition: Partition, *, delete: bool) -> None:
        self._states.pop(partition, None)
        if delete:
            self._broker.delete(partition)
        else:
            self._broker.stop(partition)

    # --- ISR ---------------------------------------------------------------------------------------------------------

    def fetched(self, partition: Partition, follower: int) -> None:
        """Add a follower that has caught up to the ISR."""
        self._caught_up.setdefault(partition, set()).add(follower)
        self._propose(partition)

    def _propose(self, partition: Partition) -> None:
        state = self._states.get(partition)
        followers = self._caught_up.get(partition)
        if state is None or not followers or followers <= set(state.isr):
            return
        self._joining[partition] = followers - set(state.isr)
        if not self._writing:
            self._writing = True
            writing = Deferred.fromCoroutine(self._write())
            writing.addErrback(lambda failure: failure.raiseException())

    async def _write(self) -> None:
        while self._joining:
            await pause(self._reactor, 0)  # one batch for all followers that caught up at the same time
            batch = dict(list(self._joining.items())[:BATCH_MAX])
            changes: dict[Partition, LeaderAndIsr] = {}
            for partition, followers in batch.items():
                del self._joining[partition]
                state = self._states.get(partition)
                if state is not None and self._broker.leads(partition):
                    changes[partition] = replace(state, isr=tuple(dict.fromkeys((*state.isr, *sorted(followers)))))
            await self._write_batch(changes)
        self._writing = False

    async def _write_batch(self, changes: dict[Partition, LeaderAndIsr]) -> None:
        units = [[_state_write(partition, state)] for partition, state in changes.items()]
        outcomes = await write_units(self._client, units)
        for (partition, state), outcome in zip(changes.items(), outcomes, strict=True):
            if isinstance(outcome, Exception):
                continue  # the controller has changed the state, and will send it
            (stat,) = outcome
            assert isinstance(stat, Stat)
            current = self._states.get(partition)
            if current is not None and current.partition_epoch == state.partition_epoch:
                self._states[partition] = replace(state, partition_epoch=stat.version)
            self._notifications.add(partition.key)


def _state_write(partition: Partition, state: LeaderAndIsr) -> SetData:
    path = znodes.partition_state_path(*partition.key)
    return SetData(path, documents.encode_partition_state(state), state.partition_epoch)
