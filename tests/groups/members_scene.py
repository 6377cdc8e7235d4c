"""Simulated cluster of three brokers and the members of a classic group; its coordinator dies at chosen steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.coordination import partition_of
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire.messages import Api
from tests.support.clients.group_history import GroupHistory
from tests.support.clients.group_member import GroupMember, Subscription

GROUP_ID = "readers"
TOPIC = "t"
PARTITIONS = 6
OFFSETS_PARTITIONS = 3
ALL_PARTITIONS = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
CONVERGENCE_S_MAX = 90.0
"""Maximum simulated time until a broker's death is detected, its partitions have new leaders, and members rejoin."""

Step = Callable[[str], None]


class WatchedClient(CoordinatorClient):
    """Client that calls ``step`` before each request and after each response."""

    step: Step

    async def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        await self.connection()
        self.step(f"{api.name} is sent")
        answer = await super().request(api, body, at_most=at_most, timeout_s=timeout_s)
        self.step(f"{api.name} is answered")
        return answer


class Consumer:
    """A member that sends a heartbeat every half second and, if ``commits`` is set, commits offsets.

    :ivar finished: fires when the member has left the group.
    """

    def __init__(
        self, client: WatchedClient, history: GroupHistory, *, rebalance_timeout_ms: int, commits: bool
    ) -> None:
        subscription = Subscription(
            GROUP_ID, {TOPIC: PARTITIONS}, session_timeout_ms=6000, rebalance_timeout_ms=rebalance_timeout_ms
        )
        self.member = GroupMember(client, subscription, history)
        self._client = client
        self._commits = commits
        self._leaving = False
        self.finished = Deferred.fromCoroutine(self._run())

    def leave(self) -> None:
        """Leave the group in the next iteration."""
        self._leaving = True

    def die(self) -> None:
        """Stop without leaving the group, and close the connection."""
        self.finished.addErrback(lambda failure: failure.trap(CancelledError))
        self.finished.cancel()

    async def _run(self) -> None:
        member = self.member
        offsets: dict[TopicPartition, int] = {}
        try:
            while not self._leaving:
                if member.needs_join:
                    await member.join()
                    offsets = await member.offsets()
                await member.heartbeat()
                if self._commits and not member.needs_join and offsets:
                    offsets = {key: offset + 1 for key, offset in offsets.items()}
                    await member.commit(offsets)
                await pause(self._client.reactor, 0.5)
            await member.leave()
        finally:
            await self._client.close()


class MembersScene:
    """A cluster and the members of a classic group.

    :ivar history: the responses to members.
    """

    def __init__(self, cluster: SimulatedCluster, *, commits: bool) -> None:
        self.cluster = cluster
        self._commits = commits
        self.history = GroupHistory(lambda: cluster.simulation.now_s)
        self.consumers: list[Consumer] = []
        self.key = TopicPartition(CONSUMER_OFFSETS, partition_of(GROUP_ID, OFFSETS_PARTITIONS))
        self._member_count = 0
        self._step_callbacks: list[Step] = []

    # --- members -----------------------------------------------------------------------------------------------------

    def add(self, *, rebalance_timeout_ms: int = 6000) -> Consumer:
        """Add a member on a new host."""
        self._member_count += 1
        host = self.cluster.host(f"member-{self._member_count}")
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        client = WatchedClient(host.reactor, brokers, GROUP_ID, GROUP, client_id=host.name)
        client.step = self._step
        consumer = Consumer(client, self.history, rebalance_timeout_ms=rebalance_timeout_ms, commits=self._commits)
        self.consumers.append(consumer)
        return consumer

    def remove(self, consumer: Consumer) -> Consumer:
        """Stop expecting that this member shares the partitions."""
        self.consumers.remove(consumer)
        return consumer

    def converge(self) -> None:
        """Run until all members share the partitions in one generation, then for more than a session timeout."""

        def is_shared() -> bool:
            members = [consumer.member for consumer in self.consumers]
            shares = [key for member in members for key in member.assigned]
            has_one_generation = len({member.identity.generation for member in members}) == 1
            have_joined = not any(member.needs_join for member in members)
            return has_one_generation and have_joined and sorted(shares) == ALL_PARTITIONS

        self.cluster.run_until(is_shared, CONVERGENCE_S_MAX)
        before = self.generation
        self.cluster.run(7)
        assert is_shared()
        assert self.generation == before
        assert self.history.contradictions == []

    @property
    def generation(self) -> int:
        return self.consumers[0].member.identity.generation

    # --- coordinators ------------------------------------------------------------------------------------------------

    @property
    def coordinator(self) -> int:
        """Return the coordinator of the group."""
        return self.cluster.leader_of(*self.key)

    def after_step(
        self, step: str, act: Callable[[], None], *, count: int = 1, delay_s: float = 0.0
    ) -> Callable[[], bool]:
        """Call ``act`` after the ``count``-th occurrence of a step, with an optional delay.

        :return: a function that returns True once ``act`` has been called.
        """
        remaining = count
        was_called = False

        def call() -> None:
            nonlocal was_called
            was_called = True
            act()

        def on_step(name: str) -> None:
            nonlocal remaining
            if name == step:
                remaining -= 1
                if remaining == 0:
                    # Scheduled even without a delay: a broker must not be killed from within one of its own calls.
                    self.cluster.host("watcher").reactor.callLater(delay_s, call)

        self._step_callbacks.append(on_step)
        return lambda: was_called

    def kill_coordinator(self) -> None:
        """Kill the coordinator's process; its disk is preserved."""
        self.cluster.brokers[self.coordinator].kill()

    def power_off_coordinator(self) -> None:
        """Power off the coordinator's machine; unsynced data may be lost."""
        self.cluster.brokers[self.coordinator].power_loss()

    def restart(self) -> None:
        """Restart all stopped brokers and wait until all replicas are in sync."""
        for machine in self.cluster.brokers.values():
            if not machine.running:
                self.cluster.run_until(machine.start())
        self.cluster.wait_in_sync(CONSUMER_OFFSETS, range(OFFSETS_PARTITIONS))

    def _step(self, name: str) -> None:
        for callback in list(self._step_callbacks):
            callback(name)


@contextmanager
def members(count: int = 2, *, seed: int = 1, commits: bool = True) -> Iterator[MembersScene]:
    """Yield a group with ``count`` members on three brokers."""
    settings = [f"offsets.topic.num.partitions={OFFSETS_PARTITIONS}", "controlled.shutdown.enable=false"]
    cluster = SimulatedCluster(seed, brokers=3, overrides=settings)
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.create_topic(TOPIC, PARTITIONS, replication_factor=3))
    cluster.run_until(client.close())
    scene = MembersScene(cluster, commits=commits)
    for _ in range(count):
        scene.add()
    scene.converge()
    cluster.wait_in_sync(CONSUMER_OFFSETS, range(OFFSETS_PARTITIONS))
    yield scene
    for consumer in scene.consumers:
        consumer.leave()
    cluster.run_until(lambda: all(consumer.finished.called for consumer in scene.consumers), CONVERGENCE_S_MAX)
    assert scene.history.contradictions == []
    cluster.stop()
