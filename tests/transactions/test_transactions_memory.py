"""Limits on the memory of transactional ids."""

from __future__ import annotations

from transactions_scene import ID, P0, P1, P2, E, Scene

from kreplica.errors import ErrorCode
from kreplica.transactions import Answer, Identity, InitRequest, TransactionsConfig
from kreplica.transactions.memory_limits import ID_BYTES, PARTITION_BYTES, TransactionBounds

ADDRESS, OTHER = "/10.0.0.1", "/10.0.0.2"


def limited(address_max: int = 10**9, broker_max: int = 10**9, **config: int) -> Scene:
    return Scene(TransactionsConfig(memory=TransactionBounds(address_max, broker_max), **config))


def start(scene: Scene, transactional_id: str, address: str) -> Answer:
    answers: list[Answer] = []
    scene.coordinator.begin(transactional_id, InitRequest(60_000, address=address), answers.append)
    scene.settle()
    (answer,) = answers
    return answer


def codes(scene: Scene, count: int, address: str, prefix: str = "id") -> list[ErrorCode]:
    return [start(scene, f"{prefix}-{number}", address).code for number in range(count)]


def add(scene: Scene, transactional_id: str, identity: Identity, *keys: object) -> ErrorCode:
    answers: list[ErrorCode] = []
    scene.coordinator.add(transactional_id, identity, keys, answers.append)  # type: ignore[arg-type]
    scene.settle()
    (code,) = answers
    return code


def test_one_address_is_bounded_and_another_is_not_affected() -> None:
    """New ids of the address get a retriable error and use up no producer id; known ones start again."""
    scene = limited(address_max=3 * (ID_BYTES + 4))
    assert codes(scene, 4, ADDRESS) == [E.NONE] * 3 + [E.COORDINATOR_NOT_AVAILABLE]
    assert E.COORDINATOR_NOT_AVAILABLE.retriable
    assert scene.next_producer_id == 1003
    assert scene.coordinator.memory.refused == 1
    assert codes(scene, 3, ADDRESS) == [E.NONE] * 3
    assert codes(scene, 1, OTHER, "of-a-neighbour") == [E.NONE]
    scene.stop()


def test_the_broker_is_bounded() -> None:
    """The total of all addresses, with ids that were loaded from the log."""
    scene = limited(broker_max=3 * (ID_BYTES + 4))
    addresses = [f"/10.0.0.{number}" for number in range(4)]
    answered = [start(scene, f"id-{number}", address).code for number, address in enumerate(addresses)]
    assert answered == [E.NONE] * 3 + [E.COORDINATOR_NOT_AVAILABLE]
    scene.fail_over()
    assert start(scene, "id-3", "/10.0.0.9").code is E.COORDINATOR_NOT_AVAILABLE
    assert start(scene, "id-0", ADDRESS).code is E.NONE
    scene.stop()


def test_partitions_of_a_transaction_count_until_it_ends() -> None:
    """A transaction does not grow beyond the bound, but it can be ended, and another one is not affected."""
    scene = limited(address_max=ID_BYTES + len(ID) + 2 * PARTITION_BYTES)
    producer, other = start(scene, ID, ADDRESS).identity, start(scene, "other", OTHER).identity
    assert add(scene, ID, producer, P0, P1) is E.NONE
    assert add(scene, ID, producer, P2) is E.COORDINATOR_NOT_AVAILABLE
    assert add(scene, ID, producer, P0) is E.NONE
    assert add(scene, "other", other, P2) is E.NONE
    assert scene.end(producer, commits=True).code is E.NONE
    scene.settle()
    held = scene.coordinator.memory.held_bytes
    assert held == ID_BYTES + len(ID) + ID_BYTES + len("other") + PARTITION_BYTES
    assert add(scene, ID, producer, P2) is E.NONE
    scene.stop()


def test_an_id_that_expires_makes_room() -> None:
    """Its memory is given back when the tombstone is committed."""
    scene = limited(address_max=ID_BYTES + 4, expiration_ms=1000, expiration_interval_ms=500)
    assert codes(scene, 2, ADDRESS) == [E.NONE, E.COORDINATOR_NOT_AVAILABLE]
    scene.settle(2)
    assert scene.coordinator.memory.held_bytes == 0
    assert start(scene, "id-1", ADDRESS).code is E.NONE
    scene.stop()


def test_a_loaded_id_is_charged_to_the_client_that_starts_its_producer() -> None:
    """After a fail-over no address is charged until then; a shard that is unloaded gives its memory back."""
    scene = limited(address_max=2 * (ID_BYTES + 4))
    assert codes(scene, 2, ADDRESS) == [E.NONE] * 2
    memory = scene.coordinator.memory
    scene.fail_over()
    assert memory.held_bytes == 0
    assert scene.coordinator.memory.held_bytes == 2 * (ID_BYTES + 4)
    assert codes(scene, 2, OTHER) == [E.NONE] * 2
    assert start(scene, "id-2", OTHER).code is E.COORDINATOR_NOT_AVAILABLE
    assert start(scene, "id-2", ADDRESS).code is E.NONE
    scene.stop()


def test_a_record_that_is_too_large_is_not_charged() -> None:
    """The new id is forgotten, with its memory."""
    scene = limited()
    scene.log.refuses = E.MESSAGE_TOO_LARGE
    answers: list[Answer] = []
    scene.coordinator.begin(ID, InitRequest(60_000, address=ADDRESS), answers.append)
    scene.clock.advance(0)
    scene.log.refuse()
    assert [answer.code for answer in answers] == [E.UNKNOWN_SERVER_ERROR]
    assert scene.coordinator.memory.held_bytes == 0
    scene.stop()
