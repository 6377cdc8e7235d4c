"""A group that rebalances: ``python -m benchmarks.rebalance_load rebalance HOST:PORT MEMBERS SESSION_MS``.

Members connect; the program prints ``ready`` and waits for a line.  Then all join at once; later, one more joins, and
then the leader leaves, which the others learn from their heartbeats.  The program prints as JSON how long it took after
each change until all members had an assignment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.runtime.pause import pause
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.wire import messages
from tests.support.clients.group_history import GroupHistory
from tests.support.clients.group_member import GroupMember, Subscription
from tests.support.real_reactor import run

TOPIC = "rebalance"
DESCRIBE_AS_DEAD_MAX = 5
"""Highest version of DescribeGroups that returns no error for a missing group."""

TIMEOUT_S = 120.0
LOOK_S = 0.02
CALM_S = 1.0
TIMEOUT_MS = 60_000


class Group:
    """All members, in one process."""

    def __init__(self, reactor: Any, address: tuple[str, int], session_timeout_ms: int) -> None:
        self.reactor = reactor
        self.members: list[GroupMember] = []
        self._address = address
        self._id = f"bench-rebalance-{os.getpid()}"
        self._session_timeout_ms = session_timeout_ms
        self._history = GroupHistory()
        self._stopping: set[GroupMember] = set()
        self._running: list[Deferred[None]] = []

    async def add(self, partitions: int) -> CoordinatorClient:
        """Return the connected client of a new member that has not joined yet."""
        number = len(self.members)
        client = CoordinatorClient(
            self.reactor, [self._address], self._id, GROUP, client_id=f"member-{number:03}", request_timeout_s=TIMEOUT_S
        )
        await client.request_with_retries(
            messages.DESCRIBE_GROUPS, {"groups": [self._id]}, at_most=DESCRIBE_AS_DEAD_MAX
        )
        subscription = Subscription(self._id, {TOPIC: partitions}, self._session_timeout_ms, TIMEOUT_MS)
        self.members.append(GroupMember(client, subscription, self._history))
        return client

    def begin(self, member: GroupMember, client: CoordinatorClient) -> None:
        """Join, and send heartbeats."""
        self._running.append(Deferred.fromCoroutine(self._live(member, client)))

    def stop(self, member: GroupMember) -> None:
        """Ask the member to leave."""
        self.members.remove(member)
        self._stopping.add(member)

    async def settled(self, after: int) -> float:
        """Wait until all members are in one generation later than ``after``, and return the time that this took."""
        started_s = time.perf_counter()
        while True:
            generations = {member.identity.generation for member in self.members if not member.needs_join}
            if len(generations) == 1 and max(generations) > after and not any(m.needs_join for m in self.members):
                return time.perf_counter() - started_s
            await pause(self.reactor, LOOK_S)

    @property
    def generation(self) -> int:
        return max(member.identity.generation for member in self.members)

    async def end(self) -> None:
        """Make all members leave, one after another."""
        for member in list(self.members):
            self.stop(member)
        for running in self._running:
            await running

    async def _live(self, member: GroupMember, client: CoordinatorClient) -> None:
        while member not in self._stopping:
            if member.needs_join:
                await member.join()
            await pause(self.reactor, LOOK_S)
            await member.heartbeat()
        await member.leave()
        await client.close()


async def main(address: str, count: int, session_timeout_ms: int) -> dict[str, Any]:
    from twisted.internet import reactor

    host, _, port = address.rpartition(":")
    group = Group(reactor, (host, int(port)), session_timeout_ms)
    clients = [await group.add(2 * count) for _ in range(count)]
    print("ready", flush=True)
    sys.stdin.readline()
    started_cpu_s = time.process_time()
    for member, client in zip(group.members, clients, strict=True):
        group.begin(member, client)
    first_s = await group.settled(-1)
    await pause(reactor, CALM_S)
    additional = await group.add(2 * count)
    group.begin(group.members[-1], additional)
    joined_s = await group.settled(group.generation)
    await pause(reactor, CALM_S)
    group.stop(group.members[0])
    left_s = await group.settled(group.generation)
    report = {"first_s": first_s, "joined_s": joined_s, "left_s": left_s}
    report["client_cpu_s"] = time.process_time() - started_cpu_s
    await group.end()
    return report


if __name__ == "__main__":
    print(json.dumps(run(main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])), TIMEOUT_S)), flush=True)
