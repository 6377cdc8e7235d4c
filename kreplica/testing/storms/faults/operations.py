"""Reassignments and leader elections that administrators request."""

from __future__ import annotations

from collections.abc import Awaitable
from random import Random

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.replicated_run import ReplicatedRun

CANCEL_CHANCE = 0.2


def reassign(run: ReplicatedRun, random: Random) -> None:
    """Request a reassignment of a partition, or cancel it; with three brokers only the order of replicas changes."""
    controller = run.cluster.controller()
    if controller is None:
        return
    key = random.choice((*run.keys, *run.side_topics.keys))
    target = None if random.random() < CANCEL_CHANCE else random.sample(sorted(run.cluster.brokers), REPLICAS)
    run.note(f"{key} is reassigned to {target}" if target else f"the reassignment of {key} is cancelled")
    client = run.cluster.client(broker=controller)
    _start(client, client.reassign(key.topic, key.partition, target))


def elect(run: ReplicatedRun, random: Random) -> None:
    """Request the election of a partition's preferred leader."""
    controller = run.cluster.controller()
    if controller is None:
        return
    key = random.choice((*run.keys, *run.side_topics.keys))
    run.note(f"the preferred leader of {key} is elected")
    client = run.cluster.client(broker=controller)
    _start(client, client.elect_preferred(key.topic, key.partition))


def _start(client: WireClient, request: Awaitable[object]) -> None:
    """Send a request; a rejection or a lost response is ignored."""
    Deferred.fromCoroutine(_send(client, request))


async def _send(client: WireClient, request: Awaitable[object]) -> None:
    try:
        await request
    except (ClientError, KafkaError):
        pass
    await client.close()
