"""Fenced producers, lost responses, and late markers and batches."""

from __future__ import annotations

from collections.abc import Coroutine
from copy import copy
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.testing.clients.coordinator_client import RequestRejected, first_error
from kreplica.testing.clients.transactional_producer import Identity, TransactionalProducer
from kreplica.wire import messages
from tests.support.mutations.scenarios.stage import (
    LEADER,
    SEPARATOR,
    TARGET_KEY,
    TRANSACTIONS,
    TRANSACTIONS_KEY,
    Stage,
    name,
    stage,
)

LOST_S = 12.0
"""A delay that is longer than a client waits for a response."""

ASKED_S, MARKED_S = 0.02, 2.0
"""Time until a leader has sent its request to a coordinator; time until a transaction has ended in its partitions."""


async def _write(producer: TransactionalProducer, value: bytes) -> None:
    """Write a record in a new or the current transaction."""
    if producer.transaction is None:
        await producer.begin()
    assert producer.transaction is not None
    await producer.send(TARGET_KEY, [value + SEPARATOR + producer.transaction.encode()])


def _losing_the_response(scene: Stage, host: str, work: Coroutine[Any, Any, object]) -> None:
    """Let a client send requests to its coordinator, and drop the first response."""
    scene.network.cut(name(TRANSACTIONS), host, one_way=True)
    asking = scene.begin(work)
    scene.cluster.run(LOST_S)
    scene.network.heal()
    scene.cluster.run_until(asking)


# --- fencing ---------------------------------------------------------------------------------------------------------


def fenced_producer_commits(seed: int) -> None:
    """A new producer with the same transactional ID has an open transaction when the old producer commits its own."""
    with stage(seed) as scene:
        zombie, successor = scene.producer("id", "zombie"), scene.producer("id", "successor")
        scene.do(zombie.start())
        scene.do(_write(zombie, b"0/0"))
        scene.do(successor.start())
        scene.do(_write(successor, b"0/1"))
        scene.rejected(zombie.commit())
        scene.cluster.run(1.0)
        scene.rejected(successor.abort())


def lost_commit_response(seed: int) -> None:
    """The response to a commit, which contains the producer's next epoch, is lost; it retries with the old epoch."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", bumps_epoch=True)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        _losing_the_response(scene, "producer", _unfenced(producer.commit()))
        scene.do(_write(producer, b"0/1"))
        scene.do(_unfenced(producer.commit()))


def lost_epoch_response(seed: int) -> None:
    """The response with a new epoch is lost; the producer retries with the old epoch."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        _losing_the_response(scene, "producer", producer.commit())
        _losing_the_response(scene, "producer", _unfenced(producer.begin()))
        scene.do(_write(producer, b"0/1"))
        scene.do(producer.commit())


async def _unfenced(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except RequestRejected as error:
        raise AssertionError(f"no other producer has started, and the producer receives {error}") from None


# --- leaders ---------------------------------------------------------------------------------------------------------


def _mark(scene: Stage, identity: Identity, coordinator_epoch: int, version: int) -> ErrorCode:
    """Send a commit marker, as a coordinator does, and return the error code."""
    marker = {
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "transaction_result": True,
        "topics": [{"name": TARGET_KEY.topic, "partition_indexes": [TARGET_KEY.partition]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version,
    }
    client = scene.client(LEADER)
    answer = scene.do(client.request(messages.WRITE_TXN_MARKERS, {"markers": [marker]}))
    scene.do(client.close())
    return first_error(answer)


def marker_of_previous_coordinator(seed: int) -> None:
    """A marker from the old coordinator arrives after the new one ended the transaction and another has started."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        old_epoch = scene.leader_epoch(TRANSACTIONS_KEY)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        scene.halt(TRANSACTIONS)
        scene.do(producer.commit())
        scene.do(_write(producer, b"0/1"))
        _mark(scene, producer.identity, old_epoch, 0)
        scene.cluster.run(1.0)
        scene.rejected(producer.abort())


def repeated_marker(seed: int) -> None:
    """A marker is written again because the coordinator received no response; the next transaction is already open."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", bumps_epoch=True)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        scene.do(producer.commit())
        scene.do(_write(producer, b"0/1"))
        _mark(scene, producer.identity, scene.leader_epoch(TRANSACTIONS_KEY), 2)
        scene.cluster.run(1.0)
        scene.rejected(producer.abort())


def write_after_abort(seed: int) -> None:
    """A batch arrives after its transaction was aborted: it would open a transaction that never ends."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        late = copy(producer)
        scene.do(producer.abort())
        scene.cluster.run(MARKED_S)
        scene.rejected(_write(late, b"0/1"))


def late_verification(seed: int) -> None:
    """The coordinator confirms an open transaction, but the end of the transaction reaches the leader first."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))  # connects the leader with the coordinator
        scene.do(producer.commit())
        scene.do(producer.begin())
        scene.do(producer.add(TARGET_KEY))
        late = copy(producer)
        link = scene.network.link(name(TRANSACTIONS), name(LEADER))
        link.latency_s = (MARKED_S, MARKED_S)
        writing = scene.begin(_rejectable(_write(late, b"0/1")))
        scene.cluster.run(ASKED_S)
        link.latency_s = scene.network.latency_s
        scene.do(producer.abort())
        scene.cluster.run_until(writing)


async def _rejectable(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except RequestRejected:
        pass


def write_after_fencing(seed: int) -> None:
    """The first batch of a fenced producer arrives after its transaction was aborted."""
    with stage(seed) as scene:
        zombie, successor = scene.producer("id", "zombie"), scene.producer("id", "successor")
        scene.do(zombie.start())
        scene.do(zombie.begin())
        scene.do(zombie.add(TARGET_KEY))
        scene.do(successor.start())
        scene.rejected(_write(zombie, b"0/0"))


# --- readers ---------------------------------------------------------------------------------------------------------


def aborted_between_committed(seed: int) -> None:
    """A transaction is open for some time and then aborted, between two committed transactions."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        for number in range(3):
            scene.do(_write(producer, b"0/%d" % number))
            scene.cluster.run(1.0)
            scene.do(producer.abort() if number == 1 else producer.commit())


def producer_dies_in_transaction(seed: int) -> None:
    """A producer fails in a transaction; ``read_committed`` consumers must not wait longer than its timeout."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", timeout_ms=3000)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        scene.cluster.host("producer").kill()
