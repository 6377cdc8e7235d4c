"""What administrators do while everything fails."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.storms.replicated_run import REPLICAS, ReplicatedRun

CANCEL_CHANCE = 0.2


def reassign(run: ReplicatedRun, random: Random) -> None:
    """Have a partition's replicas moved, or take that back; with as many brokers as replicas, only their order."""
    controller = run.cluster.controller()
    if controller is None:
        return
    key = random.choice((*run.keys, *run.side_topics.keys))
    target = None if random.random() < CANCEL_CHANCE else random.sample(sorted(run.cluster.brokers), REPLICAS)
    run.tell(f"{key} to {target}")
    client = run.cluster.client(broker=controller)
    _begin(client, client.reassign(key.topic, key.partition, target))


def elect(run: ReplicatedRun, random: Random) -> None:
    """Have the preferred replica of a partition lead."""
    controller = run.cluster.controller()
    if controller is None:
        return
    key = random.choice((*run.keys, *run.side_topics.keys))
    run.tell(f"{key} to its preferred leader")
    client = run.cluster.client(broker=controller)
    _begin(client, client.elect_preferred(key.topic, key.partition))


def _begin(client: WireClient, asked: Awaitable[object]) -> None:
    """Nobody is obliged to do it, and no answer comes where the controller dies."""
    Deferred.fromCoroutine(_ask(client, asked))


async def _ask(client: WireClient, asked: Awaitable[object]) -> None:
    try:
        await asked
    except (ClientError, KafkaError):
        pass
    await client.close()
