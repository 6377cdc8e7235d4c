"""Valid requests of transactional producers, and of tools that inspect transactions, in every version."""

from __future__ import annotations

from typing import Any

from kreplica.wire import messages
from kreplica.wire.messages import Api
from tests.support.broker_scene import Scene, batch

SOON = {14, 15, 16, 51}
"""Retriable errors while the coordinator is loading, being found, has just moved, or is writing markers."""


async def ask_until_served(scene: Scene, api: Api, body: dict[str, Any], version: int) -> dict[str, Any]:
    """Send a request, and retry it while the coordinator is not ready, as clients do."""
    answers: list[dict[str, Any]] = []
    while not answers or _code_of(answers[-1]) in SOON:
        if answers:
            await scene.sleep(0.05)
        answers.append(await scene.ask(api, body, version))
        assert len(answers) < 200, answers[-1]
    return answers[-1]


def _code_of(answer: dict[str, Any]) -> int:
    if answer.get("error_code", 0):
        code: int = answer["error_code"]
        return code
    rows = list(answer.get("results_by_topic_v3_and_below", []))
    for transaction in answer.get("results_by_transaction", []):
        rows += transaction["topic_results"]
    codes = [row["partition_error_code"] for topic in rows for row in topic["results_by_partition"]]
    return max(codes, default=0)


async def begin(scene: Scene, transactional_id: str, version: int = 5) -> dict[str, Any]:
    """Initialize a transactional producer, and return its producer ID and epoch."""
    await scene.ask(messages.FIND_COORDINATOR, {"key": transactional_id, "key_type": 1}, 1)
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    answer = await ask_until_served(scene, messages.INIT_PRODUCER_ID, body, version)
    assert answer["error_code"] == 0
    return {
        "transactional_id": transactional_id,
        "producer_id": answer["producer_id"],
        "producer_epoch": answer["producer_epoch"],
    }


def add_body(identity: dict[str, Any], version: int, **more: Any) -> dict[str, Any]:
    """Return an AddPartitionsToTxn for the topic ``t``."""
    topics = [{"name": "t", "partitions": [0]}]
    if version >= 4:
        return {"transactions": [identity | {"topics": topics, "verify_only": False} | more]}
    return {f"v3_and_below_{name}": value for name, value in identity.items()} | {"v3_and_below_topics": topics}


async def _add_partitions(scene: Scene, version: int) -> None:
    identity = await begin(scene, f"adds-{version}")
    answer = await ask_until_served(scene, messages.ADD_PARTITIONS_TO_TXN, add_body(identity, version), version)
    assert _code_of(answer) == 0
    if version >= 4:
        answer = await scene.ask(messages.ADD_PARTITIONS_TO_TXN, add_body(identity, version, verify_only=True), version)
        (row,) = answer["results_by_transaction"]
        assert row["transactional_id"] == identity["transactional_id"]
        assert row["topic_results"][0]["results_by_partition"] == [{"partition_index": 0, "partition_error_code": 0}]


async def _add_offsets(scene: Scene, version: int) -> None:
    identity = await begin(scene, f"offsets-{version}")
    answer = await ask_until_served(scene, messages.ADD_OFFSETS_TO_TXN, identity | {"group_id": "g"}, version)
    assert answer["error_code"] == 0


async def _end(scene: Scene, version: int) -> None:
    identity = await begin(scene, f"ends-{version}")
    await ask_until_served(scene, messages.ADD_PARTITIONS_TO_TXN, add_body(identity, 3), 3)
    answer = await ask_until_served(scene, messages.END_TXN, identity | {"committed": True}, version)
    assert answer["error_code"] == 0
    if version >= 5:
        assert answer["producer_id"] == identity["producer_id"]
        assert answer["producer_epoch"] == identity["producer_epoch"] + 1


async def _describe(scene: Scene, version: int) -> None:
    identity = await begin(scene, "described")
    body = {"transactional_ids": ["described", "unheard of"]}
    answer = await scene.ask(messages.DESCRIBE_TRANSACTIONS, body, version)
    known, unknown = answer["transaction_states"]
    assert (known["error_code"], known["transaction_state"]) == (0, "Empty")
    assert (known["producer_id"], known["producer_epoch"]) == (identity["producer_id"], identity["producer_epoch"])
    assert (unknown["error_code"], unknown["transactional_id"]) == (105, "unheard of")


async def _list(scene: Scene, version: int) -> None:
    await begin(scene, "listed")
    body = {"state_filters": ["Empty", "Odd"], "producer_id_filters": []}
    answer = await ask_until_served(scene, messages.LIST_TRANSACTIONS, body, version)
    assert (answer["error_code"], list(answer["unknown_state_filters"])) == (0, ["Odd"])
    assert "listed" in {row["transactional_id"] for row in answer["transaction_states"]}


async def _write_markers(scene: Scene, version: int) -> None:
    marker = {
        "producer_id": 10_000 + version,
        "producer_epoch": 1,
        "transaction_result": True,
        "topics": [{"name": "t", "partition_indexes": [0, 9]}],
        "coordinator_epoch": 0,
        "transaction_version": 2,
    }
    answer = await scene.ask(messages.WRITE_TXN_MARKERS, {"markers": [marker]}, version)
    (row,) = answer["markers"]
    assert row["producer_id"] == 10_000 + version
    assert [(one["partition_index"], one["error_code"]) for one in row["topics"][0]["partitions"]] == [(0, 0), (9, 3)]


async def _describe_producers(scene: Scene, version: int) -> None:
    await scene.produce("t", batch(b"v", producer_id=20_000, producer_epoch=3, base_sequence=0))
    body = {"topics": [{"name": "t", "partition_indexes": [0, 9]}]}
    answer = await scene.ask(messages.DESCRIBE_PRODUCERS, body, version)
    known, unknown = answer["topics"][0]["partitions"]
    (row,) = [row for row in known["active_producers"] if row["producer_id"] == 20_000]
    assert (row["producer_epoch"], row["last_sequence"], row["current_txn_start_offset"]) == (3, 0, -1)
    assert (unknown["error_code"], unknown["active_producers"]) == (3, [])


async def _txn_offset_commit(scene: Scene, version: int) -> None:
    identity = await begin(scene, f"commits-{version}")
    if version < 5:
        await ask_until_served(scene, messages.ADD_OFFSETS_TO_TXN, identity | {"group_id": "g"}, 3)
    partition = {"partition_index": 0, "committed_offset": 4, "committed_metadata": None}
    topics = [{"name": "t", "partitions": [partition]}]
    body = identity | {"group_id": "g", "member_id": "", "topics": topics}
    while True:
        answer = await scene.ask(messages.TXN_OFFSET_COMMIT, body, version)
        (row,) = answer["topics"][0]["partitions"]
        if row["error_code"] not in SOON:
            break
        await scene.sleep(0.05)
    assert row["error_code"] == 0


TRANSACTION_CHECKS = {
    messages.WRITE_TXN_MARKERS: _write_markers,
    messages.DESCRIBE_PRODUCERS: _describe_producers,
    messages.TXN_OFFSET_COMMIT: _txn_offset_commit,
    messages.ADD_PARTITIONS_TO_TXN: _add_partitions,
    messages.ADD_OFFSETS_TO_TXN: _add_offsets,
    messages.END_TXN: _end,
    messages.DESCRIBE_TRANSACTIONS: _describe,
    messages.LIST_TRANSACTIONS: _list,
}
