"""Limits on the memory of transactional IDs."""

from __future__ import annotations

from transactions_scene import ID, P0, P1, P2, E, Scene

from kreplica.errors import ErrorCode
from kreplica.transactions import Identity, InitRequest, ProducerResponse, TransactionsConfig
from kreplica.transactions.memory_limits import ID_BYTES, PARTITION_BYTES, TransactionBounds

ADDRESS, OTHER = "/10.0.0.1", "/10.0.0.2"


def limited_scene(address_max: int = 10**9, broker_max: int = 10**9, **config: int) -> Scene:
    return Scene(TransactionsConfig(memory=TransactionBounds(address_max, broker_max), **config))


def start(scene: Scene, transactional_id: str, address: str) -> ProducerResponse:
    answers: list[ProducerResponse] = []
    scene.coordinator.begin(transactional_id, InitRequest(60_000, address=address), answers.append)
    scene.settle()
    (answer,) = answers
    return answer


def start_ids(scene: Scene, count: int, address: str, prefix: str = "id") -> list[ErrorCode]:
    return [start(scene, f"{prefix}-{number}", address).code for number in range(count)]


def add(scene: Scene, transactional_id: str, identity: Identity, *keys: object) -> ErrorCode:
    answers: list[ErrorCode] = []
    scene.coordinator.add(transactional_id, identity, keys, answers.append)  # type: ignore[arg-type]
    scene.settle()
    (code,) = answers
    return code


def test_address_is_bounded_and_others_are_not_affected() -> None:
    """New IDs of an address at its limit get a retriable error and no producer ID; known IDs can be used again."""
    scene = limited_scene(address_max=3 * (ID_BYTES + 4))
    assert start_ids(scene, 4, ADDRESS) == [E.NONE] * 3 + [E.COORDINATOR_NOT_AVAILABLE]
    assert E.COORDINATOR_NOT_AVAILABLE.retriable
    assert scene.next_producer_id == 1003
    assert scene.coordinator.memory.rejected == 1
    assert start_ids(scene, 3, ADDRESS) == [E.NONE] * 3
    assert start_ids(scene, 1, OTHER, "other") == [E.NONE]
    scene.stop()


def test_broker_is_bounded() -> None:
    """The limit applies to all addresses together, including IDs loaded from the log."""
    scene = limited_scene(broker_max=3 * (ID_BYTES + 4))
    addresses = [f"/10.0.0.{number}" for number in range(4)]
    codes = [start(scene, f"id-{number}", address).code for number, address in enumerate(addresses)]
    assert codes == [E.NONE] * 3 + [E.COORDINATOR_NOT_AVAILABLE]
    scene.fail_over()
    assert start(scene, "id-3", "/10.0.0.9").code is E.COORDINATOR_NOT_AVAILABLE
    assert start(scene, "id-0", ADDRESS).code is E.NONE
    scene.stop()


def test_partitions_are_charged_until_the_transaction_ends() -> None:
    """A transaction at the limit cannot grow but can be ended; other transactions are not affected."""
    scene = limited_scene(address_max=ID_BYTES + len(ID) + 2 * PARTITION_BYTES)
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


def test_expired_id_releases_its_memory() -> None:
    """The memory of an expired ID is released when its tombstone is committed."""
    scene = limited_scene(address_max=ID_BYTES + 4, expiration_ms=1000, expiration_interval_ms=500)
    assert start_ids(scene, 2, ADDRESS) == [E.NONE, E.COORDINATOR_NOT_AVAILABLE]
    scene.settle(2)
    assert scene.coordinator.memory.held_bytes == 0
    assert start(scene, "id-1", ADDRESS).code is E.NONE
    scene.stop()


def test_loaded_id_is_charged_to_the_client_that_starts_its_producer() -> None:
    """A loaded ID is charged to no address until its producer starts; an unloaded shard releases its memory."""
    scene = limited_scene(address_max=2 * (ID_BYTES + 4))
    assert start_ids(scene, 2, ADDRESS) == [E.NONE] * 2
    memory = scene.coordinator.memory
    scene.fail_over()
    assert memory.held_bytes == 0
    assert scene.coordinator.memory.held_bytes == 2 * (ID_BYTES + 4)
    assert start_ids(scene, 2, OTHER) == [E.NONE] * 2
    assert start(scene, "id-2", OTHER).code is E.COORDINATOR_NOT_AVAILABLE
    assert start(scene, "id-2", ADDRESS).code is E.NONE
    scene.stop()


def test_oversized_record_is_not_charged() -> None:
    """If the record of a new ID is too large, the ID is removed and its memory released."""
    scene = limited_scene()
    scene.log.rejects = E.MESSAGE_TOO_LARGE
    answers: list[ProducerResponse] = []
    scene.coordinator.begin(ID, InitRequest(60_000, address=ADDRESS), answers.append)
    scene.clock.advance(0)
    scene.log.reject()
    assert [answer.code for answer in answers] == [E.UNKNOWN_SERVER_ERROR]
    assert scene.coordinator.memory.held_bytes == 0
    scene.stop()
