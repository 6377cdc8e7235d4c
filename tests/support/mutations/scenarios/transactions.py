"""Producers whose place another has taken, answers that are lost, and markers and batches that come late."""

from __future__ import annotations

from collections.abc import Coroutine
from copy import copy
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.testing.clients.coordinator_client import Refused, first_error
from kreplica.testing.clients.transactional_producer import Identity, TransactionalProducer
from kreplica.wire import messages
from tests.support.mutations.scenarios.stage import (
    LEADER,
    TARGET_KEY,
    TRANSACTIONS,
    TRANSACTIONS_KEY,
    Stage,
    name,
    stage,
)

LOST_S = 12.0
"""Longer than a client waits for an answer."""

ASKED_S, MARKED_S = 0.02, 2.0
"""Until a leader has asked a coordinator; until a transaction is ended in its partitions."""


async def _write(producer: TransactionalProducer, value: bytes) -> None:
    """Write a record in a transaction that begins with it, or goes on."""
    if producer.transaction is None:
        await producer.begin()
    assert producer.transaction is not None
    await producer.send(TARGET_KEY, [value + b"#" + producer.transaction.encode()])


def _losing_the_answer(scene: Stage, host: str, work: Coroutine[Any, Any, object]) -> None:
    """Let a client ask its coordinator, whose first answer never comes."""
    scene.network.cut(name(TRANSACTIONS), host, one_way=True)
    asking = scene.begin(work)
    scene.cluster.run(LOST_S)
    scene.network.heal()
    scene.cluster.run_until(asking)


# --- who may act -----------------------------------------------------------------------------------------------------


def has_been_replaced(seed: int) -> None:
    """A newer incarnation is in the midst of its transaction when the older one commits its own."""
    with stage(seed) as scene:
        zombie, successor = scene.producer("id", "zombie"), scene.producer("id", "successor")
        scene.do(zombie.start())
        scene.do(_write(zombie, b"0/0"))
        scene.do(successor.start())
        scene.do(_write(successor, b"0/1"))
        scene.refused(zombie.commit())
        scene.cluster.run(1.0)
        scene.refused(successor.abort())


def does_not_hear_that_it_committed(seed: int) -> None:
    """The answer to a commit is lost, and with it the producer's next epoch: it asks again with the old one."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", epoch_grows=True)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        _losing_the_answer(scene, "producer", _unfenced(producer.commit()))
        scene.do(_write(producer, b"0/1"))
        scene.do(_unfenced(producer.commit()))


def does_not_hear_of_its_epoch(seed: int) -> None:
    """A producer asks for a new epoch, and the answer is lost: it asks again with the old one."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        _losing_the_answer(scene, "producer", producer.commit())
        _losing_the_answer(scene, "producer", _unfenced(producer.begin()))
        scene.do(_write(producer, b"0/1"))
        scene.do(producer.commit())


async def _unfenced(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Refused as error:
        raise AssertionError(f"nobody else has come, and the producer is told {error}") from None


# --- what leaders take -----------------------------------------------------------------------------------------------


def _mark(scene: Stage, identity: Identity, coordinator_epoch: int, version: int) -> ErrorCode:
    """Have a marker arrive that commits, as coordinators send them."""
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


def is_ended_by_a_coordinator_of_the_past(seed: int) -> None:
    """A marker of the old coordinator arrives when the new one has ended that transaction, and another is open."""
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
        scene.refused(producer.abort())


def is_ended_twice(seed: int) -> None:
    """The marker of a transaction is written again, its coordinator had no answer; the next transaction is open."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", epoch_grows=True)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        scene.do(producer.commit())
        scene.do(_write(producer, b"0/1"))
        _mark(scene, producer.identity, scene.leader_epoch(TRANSACTIONS_KEY), 2)
        scene.cluster.run(1.0)
        scene.refused(producer.abort())


def writes_late(seed: int) -> None:
    """A batch arrives when its transaction was aborted: it would open one that nobody ends."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        late = copy(producer)
        scene.do(producer.abort())
        scene.cluster.run(MARKED_S)
        scene.refused(_write(late, b"0/1"))


def writes_what_was_verified_late(seed: int) -> None:
    """The coordinator says that a transaction is open; before the leader hears that, it hears of its end."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))  # the leader is connected with the coordinator from now on
        scene.do(producer.commit())
        scene.do(producer.begin())
        scene.do(producer.add(TARGET_KEY))
        late = copy(producer)
        link = scene.network.link(name(TRANSACTIONS), name(LEADER))
        link.latency_s = (MARKED_S, MARKED_S)
        writing = scene.begin(_refusable(_write(late, b"0/1")))
        scene.cluster.run(ASKED_S)
        link.latency_s = scene.network.latency_s
        scene.do(producer.abort())
        scene.cluster.run_until(writing)


async def _refusable(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Refused:
        pass


def writes_after_it_was_replaced(seed: int) -> None:
    """A newer incarnation has begun, and the transaction of the older one was aborted: its first batch arrives."""
    with stage(seed) as scene:
        zombie, successor = scene.producer("id", "zombie"), scene.producer("id", "successor")
        scene.do(zombie.start())
        scene.do(zombie.begin())
        scene.do(zombie.add(TARGET_KEY))
        scene.do(successor.start())
        scene.refused(_write(zombie, b"0/0"))


# --- what readers are given ------------------------------------------------------------------------------------------


def is_not_committed(seed: int) -> None:
    """A transaction is open for a while, and then aborted, between two that are committed."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer")
        scene.do(producer.start())
        for number in range(3):
            scene.do(_write(producer, b"0/%d" % number))
            scene.cluster.run(1.0)
            scene.do(producer.abort() if number == 1 else producer.commit())


def is_heard_of_no_more(seed: int) -> None:
    """A producer dies in the midst of a transaction: readers of committed records wait no longer than it may take."""
    with stage(seed) as scene:
        producer = scene.producer("id", "producer", timeout_ms=3000)
        scene.do(producer.start())
        scene.do(_write(producer, b"0/0"))
        scene.cluster.host("producer").kill()
