"""Transactional offset commits take effect with the commit of their transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from offsets_wire import WireScene, error_codes, topics_of, wire_scene

from kreplica.errors import ErrorCode
from kreplica.server.handlers.groups.offset_rows import LARGE_COMMIT_OFFSETS
from kreplica.testing.clients.coordinator_client import TRANSACTION, CoordinatorClient
from kreplica.wire import messages

NONE = ErrorCode.NONE
UNSTABLE = {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
VERSIONS = range(messages.TXN_OFFSET_COMMIT.versions[1] + 1)
IMPLICIT_FROM = 5

Row = dict[str, Any]


@dataclass
class Producer:
    """A transactional producer that sends one request at a time."""

    scene: WireScene
    client: CoordinatorClient
    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1

    def request(self, api: messages.Api, body: Row, version: int | None = None) -> Row:
        identity = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }
        return self.scene.cluster.run_until(
            self.client.request_with_retries(api, identity | body, at_most=version)
        ).body

    def start(self) -> None:
        answer = self.request(
            messages.INIT_PRODUCER_ID, {"producer_id": -1, "producer_epoch": -1, "transaction_timeout_ms": 60_000}
        )
        self.producer_id, self.producer_epoch = answer["producer_id"], answer["producer_epoch"]

    def add_offsets(self, group: str) -> None:
        self.request(messages.ADD_OFFSETS_TO_TXN, {"group_id": group})

    def commit(self, group: str, offsets: Row, *, version: int = 4, **fields: Any) -> ErrorCode | list[ErrorCode]:
        body = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "generation_id": -1,
            "member_id": "",
            "topics": topics_of(offsets),
            **fields,
        }
        return error_codes(self.scene.request(self.scene.client(group), messages.TXN_OFFSET_COMMIT, body, version))

    def end(self, *, commits: bool, version: int = 4) -> None:
        answer = self.request(messages.END_TXN, {"committed": commits}, version)
        if answer.get("producer_id", -1) >= 0:
            self.producer_id, self.producer_epoch = answer["producer_id"], answer["producer_epoch"]

    def settle(self, group: str) -> None:
        """Wait until the group has received the marker."""
        self.scene.cluster.run_until(lambda: not self.scene.shard(group).offsets.is_changing(group))


def producer_of(scene: WireScene, name: str) -> Producer:
    host = scene.cluster.host(f"producer-{name}")
    addresses = [(f"broker-{number}", 9092) for number in scene.cluster.brokers]
    producer = Producer(scene, CoordinatorClient(host.reactor, addresses, name, TRANSACTION, client_id=name), name)
    producer.start()
    return producer


@pytest.fixture(scope="module")
def scene() -> Iterator[WireScene]:
    with wire_scene("transaction.state.log.num.partitions=4", "offset.metadata.max.bytes=20") as scene:
        yield scene


@pytest.mark.parametrize("commits", [True, False])
def test_a_large_commit_is_part_of_its_transaction(scene: WireScene, commits: bool) -> None:
    """A large commit, whose batch is built in advance, is applied or discarded with its transaction."""
    group = f"large-{commits}"
    producer = producer_of(scene, f"large-producer-{commits}")
    assert scene.commit(group, {"t": {0: 1}}) == NONE
    producer.add_offsets(group)
    topics = topics_of({"t": {0: 5, 1: 6}})
    topics[0]["partitions"] *= LARGE_COMMIT_OFFSETS
    assert producer.commit(group, {}, topics=topics) == NONE
    assert scene.fetch(group, {"t": [0]}, require_stable=True) == UNSTABLE
    assert scene.fetch(group, {"t": [0]}) == {("t", 0): (1, "")}
    producer.end(commits=commits)
    producer.settle(group)
    assert scene.fetch(group, None) == ({("t", 0): (5, ""), ("t", 1): (6, "")} if commits else {("t", 0): (1, "")})


def test_a_large_commit_of_another_producer_is_refused(scene: WireScene) -> None:
    """The producer epoch of a large commit is verified like that of a small one."""
    producer = producer_of(scene, "fenced")
    producer.add_offsets("fenced-group")
    topics = topics_of({"t": {0: 5}})
    topics[0]["partitions"] *= LARGE_COMMIT_OFFSETS
    assert producer.commit("fenced-group", {}, topics=topics, producer_epoch=7) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert scene.fetch("fenced-group", {"t": [0]}, require_stable=True) == {("t", 0): (-1, "")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_effective_when_their_transaction_commits(scene: WireScene, version: int, commits: bool) -> None:
    """Offsets are unstable until the transaction marker, then applied or discarded."""
    group = f"g-{version}-{commits}"
    producer = producer_of(scene, group)
    scene.commit(group, {"t": {0: 3}})
    if version < IMPLICIT_FROM:
        producer.add_offsets(group)
    assert producer.commit(group, {"t": {0: (5, "done")}}, version=version) is NONE
    assert scene.fetch(group, {"t": [0]}, require_stable=True) == UNSTABLE
    assert scene.fetch(group, None, require_stable=True) == UNSTABLE
    assert scene.fetch(group, {"t": [0]}) == {("t", 0): (3, "")}
    producer.end(commits=commits, version=5 if version >= IMPLICIT_FROM else 4)
    producer.settle(group)
    assert scene.fetch(group, {"t": [0]}, require_stable=True) == {("t", 0): (5, "done") if commits else (3, "")}


def test_other_partitions_are_stable(scene: WireScene) -> None:
    producer = producer_of(scene, "stable")
    scene.commit("stable", {"t": {1: 3}})
    producer.add_offsets("stable")
    producer.commit("stable", {"t": {0: 5}})
    found = scene.fetch("stable", {"t": [0, 1]}, require_stable=True)
    assert found == {**UNSTABLE, ("t", 1): (3, "")}
    producer.end(commits=True)


def test_partitions_that_do_not_exist_are_refused(scene: WireScene) -> None:
    """TxnOffsetCommit refuses missing partitions, as OffsetCommit does."""
    producer = producer_of(scene, "partitions")
    producer.add_offsets("partitions")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit("partitions", {"t": {1: 5, 2: 5, 2**31 - 1: 5}}) == [NONE, unknown, unknown]
    producer.end(commits=True)
    producer.settle("partitions")
    assert scene.fetch("partitions", None) == {("t", 1): (5, "")}


def test_commit_without_add_offsets_is_refused(scene: WireScene) -> None:
    """A commit without AddOffsetsToTxn is refused, because no marker would follow (KIP-890)."""
    producer = producer_of(scene, "adds-nothing")
    codes = [producer.commit("adds-nothing", {"t": {0: 5}}, version=version) for version in (3, 4)]
    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
    assert scene.fetch("adds-nothing", {"t": [0]}, require_stable=True) == {("t", 0): (-1, "")}


def test_fenced_producer_is_refused(scene: WireScene) -> None:
    """A fenced producer is refused, and no partition becomes unstable."""
    old = producer_of(scene, "fenced")
    old.add_offsets("fenced")
    producer_of(scene, "fenced")
    assert old.commit("fenced", {"t": {0: 5}}) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert scene.fetch("fenced", {"t": [0]}, require_stable=True) == {("t", 0): (-1, "")}


def test_member_of_an_old_generation_is_refused(scene: WireScene) -> None:
    """The generation is checked if the request version has one (KIP-447)."""
    producer = producer_of(scene, "generations")
    member_id, generation = scene.join("generations", ["t"])
    producer.add_offsets("generations")
    for version in (3, 4):
        late = producer.commit(
            "generations", {"t": {0: 5}}, version=version, generation_id=generation - 1, member_id=member_id
        )
        assert late is ErrorCode.ILLEGAL_GENERATION
        stranger = producer.commit(
            "generations", {"t": {0: 5}}, version=version, generation_id=generation, member_id="stranger"
        )
        assert stranger is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.fetch("generations", {"t": [0]}, require_stable=True) == {("t", 0): (-1, "")}
    assert producer.commit("generations", {"t": {0: 5}}, generation_id=generation, member_id=member_id) is NONE
    assert producer.commit("generations", {"t": {1: 6}}, version=2) is NONE
    producer.end(commits=True)
    producer.settle("generations")
    assert scene.fetch("generations", None) == {("t", 0): (5, ""), ("t", 1): (6, "")}


def test_generation_of_a_missing_group_is_refused(scene: WireScene) -> None:
    producer = producer_of(scene, "nowhere")
    producer.add_offsets("nowhere")
    assert producer.commit("nowhere", {"t": {0: 5}}, generation_id=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    producer.end(commits=False)
    with pytest.raises(LookupError):
        scene.shard("nowhere")


def test_each_partition_has_its_own_result(scene: WireScene) -> None:
    """An invalid offset does not affect the other partitions."""
    producer = producer_of(scene, "partly")
    producer.add_offsets("partly")
    codes = producer.commit("partly", {"t": {0: (1, "x" * 21), 1: 2}, "nowhere": {0: 3}})
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.commit("", {"t": {0: 1}}) is ErrorCode.INVALID_GROUP_ID
    assert producer.commit("partly", {"nowhere": {0: 3}}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.end(commits=True)
    producer.settle("partly")
    assert scene.fetch("partly", None) == {("t", 1): (2, "")}


def test_plain_commit_after_a_transactional_one(scene: WireScene) -> None:
    """A later plain commit remains when the transaction ends."""
    producer = producer_of(scene, "later")
    producer.add_offsets("later")
    producer.commit("later", {"t": {0: 5}})
    scene.commit("later", {"t": {0: 9}})
    producer.end(commits=True)
    producer.settle("later")
    assert scene.fetch("later", {"t": [0]}) == {("t", 0): (9, "")}


def test_deleted_group_gets_no_offsets_of_its_transaction(scene: WireScene) -> None:
    """A transaction that ends after the deletion of its group restores nothing."""
    producer = producer_of(scene, "deleted")
    producer.add_offsets("deleted")
    producer.commit("deleted", {"t": {0: 5}})
    answer = scene.request(scene.client("deleted"), messages.DELETE_GROUPS, {"groups_names": ["deleted"]})
    assert answer["results"][0]["error_code"] == 0
    producer.end(commits=True)
    scene.cluster.run(1)
    assert scene.fetch("deleted", None, require_stable=True) == {}


def test_transactions_survive_the_groups_coordinator() -> None:
    """An open transaction and its unstable offsets survive a coordinator restart."""
    with wire_scene("transaction.state.log.num.partitions=4") as scene:
        producer = producer_of(scene, "restart")
        producer.add_offsets("restart")
        producer.commit("restart", {"t": {0: 5}})
        machine = scene.cluster.brokers[1]
        scene.close()
        scene.cluster.run_until(producer.client.close())
        machine.kill()
        scene.cluster.run_until(machine.start())
        groups = machine.program.coordinators.groups

        def is_loaded() -> bool:
            return len(groups.shards.loaded_shards()) == 4 and not groups.shards.is_loading

        scene.cluster.run_until(is_loaded)
        assert scene.fetch("restart", {"t": [0]}, require_stable=True) == UNSTABLE
        producer.end(commits=True)
        producer.settle("restart")
        assert scene.fetch("restart", {"t": [0]}, require_stable=True) == {("t", 0): (5, "")}
        scene.cluster.run_until(producer.client.close())
