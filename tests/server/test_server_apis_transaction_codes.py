"""Error codes of the transaction APIs, version by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transaction_checks import add_body, ask_until_served, begin

from kreplica.wire import messages
from tests.support.broker_scene import Scene, on_broker

INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 47, 48, 49
PRODUCER_FENCED, TRANSACTION_ABORTABLE = 90, 120


def partition_codes(answer: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return the error codes of one transaction, by topic and partition."""
    topics = answer.get("results_by_topic_v3_and_below") or answer["results_by_transaction"][0]["topic_results"]
    return {
        (topic["name"], row["partition_index"]): row["partition_error_code"]
        for topic in topics
        for row in topic["results_by_partition"]
    }


def test_fenced_producer_gets_an_error_known_to_its_version(tmp_path: Path) -> None:
    """Old clients know only INVALID_PRODUCER_EPOCH; newer ones get PRODUCER_FENCED (KIP-588)."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        zombie = await begin(scene, "tx")
        await begin(scene, "tx")
        for version in scene.versions(messages.ADD_PARTITIONS_TO_TXN):
            answer = await scene.ask(messages.ADD_PARTITIONS_TO_TXN, add_body(zombie, version), version)
            expected = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
            assert partition_codes(answer) == {("t", 0): expected}, version
        for api, more, known_from in (
            (messages.ADD_OFFSETS_TO_TXN, {"group_id": "g"}, 2),
            (messages.END_TXN, {"committed": True}, 2),
        ):
            for version in scene.versions(api):
                answer = await ask_until_served(scene, api, zombie | more, version)
                expected = PRODUCER_FENCED if version >= known_from else INVALID_PRODUCER_EPOCH
                assert answer["error_code"] == expected, (api.name, version)
        for version in range(3, 7):
            answer = await scene.ask(messages.INIT_PRODUCER_ID, zombie | {"transaction_timeout_ms": 1000}, version)
            expected = PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH
            assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (expected, -1, -1)

    on_broker(tmp_path, scenario)


def test_partitions_are_added_all_or_none(tmp_path: Path) -> None:
    """If one partition does not exist, no partition is added to the transaction."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        identity = await begin(scene, "tx")
        topics = [{"name": "t", "partitions": [0, 7]}, {"name": "nowhere", "partitions": [0]}]
        for version in (3, 5):
            body = add_body(identity, version)
            if version == 3:
                body["v3_and_below_topics"] = topics
            else:
                body["transactions"][0]["topics"] = topics
            answer = await scene.ask(messages.ADD_PARTITIONS_TO_TXN, body, version)
            assert partition_codes(answer) == {("t", 0): 55, ("t", 7): 3, ("nowhere", 0): 3}
        described = await scene.ask(messages.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["tx"]})
        (row,) = described["transaction_states"]
        assert (row["transaction_state"], row["topics"]) == ("Empty", [])

    on_broker(tmp_path, scenario)


def test_leaders_verify_several_transactions_in_one_request(tmp_path: Path) -> None:
    """Each transaction has its own result, in the order of the request."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        rows = []
        for name in ("a", "b"):
            rows += add_body(await begin(scene, name), 5)["transactions"]
        rows += [rows[0] | {"transactional_id": "nobody"}, rows[0] | {"topics": []}]
        for version, missing in ((4, INVALID_TXN_STATE), (5, TRANSACTION_ABORTABLE)):
            asked = {"transactions": [row | {"verify_only": True} for row in rows]}
            answer = await scene.ask(messages.ADD_PARTITIONS_TO_TXN, asked, version)
            codes = [
                list(partition_codes({"results_by_transaction": [each]}).values())
                for each in answer["results_by_transaction"]
            ]
            assert codes == [[missing], [missing], [INVALID_PRODUCER_ID_MAPPING], []]
            assert [each["transactional_id"] for each in answer["results_by_transaction"]] == ["a", "b", "nobody", "a"]
        asked = {"transactions": rows[:2]}
        assert (await ask_until_served(scene, messages.ADD_PARTITIONS_TO_TXN, asked, 5))["error_code"] == 0
        for row in rows[:2]:
            asked = {"transactions": [row | {"verify_only": True}]}
            assert partition_codes(await scene.ask(messages.ADD_PARTITIONS_TO_TXN, asked, 5)) == {("t", 0): 0}
        assert (await scene.ask(messages.ADD_PARTITIONS_TO_TXN, {"transactions": []}, 5))["error_code"] == 0

    on_broker(tmp_path, scenario)


def test_producer_id_without_epoch_is_refused(tmp_path: Path) -> None:
    """A producer ID without an epoch, or an epoch without an ID, is an invalid request (KIP-360)."""

    async def scenario(scene: Scene) -> None:
        for producer_id, epoch in ((5, -1), (-1, 5)):
            body = {"transactional_id": "tx", "transaction_timeout_ms": 1000}
            body |= {"producer_id": producer_id, "producer_epoch": epoch}
            assert (await scene.ask(messages.INIT_PRODUCER_ID, body))["error_code"] == 42
        await begin(scene, "tx")
        body = {"transactional_id": "tx", "transaction_timeout_ms": 900_001}
        assert (await scene.ask(messages.INIT_PRODUCER_ID, body))["error_code"] == 50
        body = {"transactional_id": "tx", "transaction_timeout_ms": 1000, "enable_2pc": True}
        assert (await scene.ask(messages.INIT_PRODUCER_ID, body))["error_code"] == 53

    on_broker(tmp_path, scenario)


def test_offsets_topic_is_created_on_first_use(tmp_path: Path) -> None:
    """A transaction with offsets may be the first to need the topic."""

    async def scenario(scene: Scene) -> None:
        identity = await begin(scene, "tx")
        assert scene.broker.metadata.topic("__consumer_offsets") is None
        asked = identity | {"group_id": "g"}
        assert (await scene.ask(messages.ADD_OFFSETS_TO_TXN, asked))["error_code"] == 15
        assert (await ask_until_served(scene, messages.ADD_OFFSETS_TO_TXN, asked, 4))["error_code"] == 0
        described = await scene.ask(messages.DESCRIBE_TRANSACTIONS, {"transactional_ids": ["tx"]})
        (row,) = described["transaction_states"]
        assert row["transaction_state"] == "Ongoing"
        assert [topic["topic"] for topic in row["topics"]] == ["__consumer_offsets"]
        assert row["transaction_start_time_ms"] > 0

    on_broker(tmp_path, scenario)


def test_list_transactions_filters(tmp_path: Path) -> None:
    """ListTransactions filters by state, by producer ID, and by duration."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        idle, busy = await begin(scene, "idle"), await begin(scene, "busy")
        await ask_until_served(scene, messages.ADD_PARTITIONS_TO_TXN, add_body(busy, 3), 3)

        async def listed(**filters: Any) -> list[str]:
            body = {"state_filters": [], "producer_id_filters": []} | filters
            answer = await ask_until_served(scene, messages.LIST_TRANSACTIONS, body, 1)
            assert answer["error_code"] == 0
            return sorted(row["transactional_id"] for row in answer["transaction_states"])

        assert await listed() == ["busy", "idle"]
        assert await listed(state_filters=["Ongoing"]) == ["busy"]
        assert await listed(state_filters=["Ongoing", "Empty"]) == ["busy", "idle"]
        assert await listed(state_filters=["NoSuchState"]) == []
        assert await listed(producer_id_filters=[idle["producer_id"]]) == ["idle"]
        await scene.sleep(0.02)
        assert await listed(duration_filter=10) == ["busy"]
        assert await listed(duration_filter=60_000) == []

    on_broker(tmp_path, scenario)
