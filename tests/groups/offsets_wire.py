"""A simulated cluster whose groups commit offsets over the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.errors import ErrorCode
from kreplica.groups.shard import GroupShard
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, build_versioned

Row = dict[str, Any]

GROUPS_PARTITIONS = 4


class WireScene:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self._clients: dict[str, CoordinatorClient] = {}
        self.plain_client = cluster.client()

    def request(self, client: WireClient, api: Api, body: Row, version: int | None = None) -> Row:
        return self.cluster.run_until(client.request(api, body, at_most=version))

    def client(self, group: str) -> CoordinatorClient:
        """Return a client connected to the coordinator of a group."""
        if group not in self._clients:
            host = self.cluster.host(f"client-of-{group or 'none'}")
            brokers = [tuple(server.split(":")) for server in self.cluster.bootstrap_servers.split(",")]
            addresses = [(name, int(port)) for name, port in brokers]
            client = CoordinatorClient(host.reactor, addresses, group, GROUP, client_id=host.name)
            self._clients[group] = client
            self.cluster.run_until(client.request_with_retries(messages.OFFSET_FETCH, fetch_body(group, {"none": [0]})))
        return self._clients[group]

    def commit(self, group: str, offsets: Row, *, version: int = 8, **fields: Any) -> ErrorCode | list[ErrorCode]:
        """Commit offsets as in ``topics_of``; return the error code of all partitions, or a list if they differ."""
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": topics_of(offsets),
            **fields,
        }
        answer = self.request(self.client(group), messages.OFFSET_COMMIT, body, version)
        return error_codes(answer)

    def fetch_answer(
        self, group: str, topics: dict[str, list[int]] | None, *, version: int = 8, require_stable: bool = False
    ) -> Row:
        body = fetch_body(group, topics, require_stable=require_stable)
        answer = self.request(self.client(group), messages.OFFSET_FETCH, body, version)
        return answer["groups"][0] if version >= 8 else answer

    def fetch(self, group: str, topics: dict[str, list[int]] | None, **options: Any) -> dict[tuple[str, int], Any]:
        """Return (offset, metadata) or the error code of each partition."""
        answer = self.fetch_answer(group, topics, **options)
        assert answer.get("error_code", 0) == 0, ErrorCode.of(answer["error_code"])
        return {
            (topic["name"], row["partition_index"]): (
                ErrorCode.of(row["error_code"]) if row["error_code"] else (row["committed_offset"], row["metadata"])
            )
            for topic in answer["topics"]
            for row in topic["partitions"]
        }

    def join(self, group: str, topics: Sequence[str], *, protocol_type: str = "consumer") -> tuple[str, int]:
        """Join as the only member, with an empty assignment; return the member ID and the generation."""
        body = {
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "protocol_type": protocol_type,
            "protocols": [{"name": "range", "metadata": build_versioned(SUBSCRIPTION, 1, {"topics": list(topics)})}],
        }
        client = self.client(group)
        answer = self.request(client, messages.JOIN_GROUP, body)
        assert answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        answer = self.request(client, messages.JOIN_GROUP, body | {"member_id": answer["member_id"]})
        assert answer["error_code"] == 0
        member = answer["member_id"], answer["generation_id"]
        sync = {
            "group_id": group,
            "generation_id": member[1],
            "member_id": member[0],
            "protocol_type": protocol_type,
            "protocol_name": "range",
            "assignments": [{"member_id": member[0], "assignment": b""}],
        }
        assert self.request(client, messages.SYNC_GROUP, sync)["error_code"] == 0
        return member

    def leave(self, group: str, member_id: str) -> None:
        body = {"group_id": group, "members": [{"member_id": member_id}]}
        assert self.request(self.client(group), messages.LEAVE_GROUP, body)["error_code"] == 0

    def delete_offsets(self, group: str, partitions: dict[str, list[int]]) -> Row:
        topics = [
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in partitions.items()
        ]
        body = {"group_id": group, "topics": topics}
        return self.request(self.client(group), messages.OFFSET_DELETE, body)

    def shard(self, group: str) -> GroupShard:
        """Return the coordinator's shard of a group."""
        for machine in self.cluster.brokers.values():
            if machine.running:
                for shard in machine.program.coordinators.groups.shards.loaded_shards():
                    if group in shard.groups:
                        return shard
        raise LookupError(group)

    def log_records(self, shard: GroupShard) -> list[tuple[bytes, bytes | None]]:
        """Return all records of a shard's partition, oldest first."""
        records = self.cluster.run_until(self.plain_client.read_all(CONSUMER_OFFSETS, shard.log.partition))
        return [(record.key, record.value) for record in records]

    def close(self) -> None:
        for client in (*self._clients.values(), self.plain_client):
            self.cluster.run_until(client.close())


def topics_of(offsets: Row) -> list[Row]:
    """Return the topics of an OffsetCommit request.

    :param offsets: offset or (offset, metadata[, leader epoch]), by topic and partition.
    """
    return [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "committed_metadata": metadata,
                }
                for index, (offset, metadata, epoch) in (
                    (index, (*value, -1)[:3] if isinstance(value, tuple) else (value, "", -1))
                    for index, value in partitions.items()
                )
            ],
        }
        for name, partitions in offsets.items()
    ]


def fetch_body(group: str, topics: dict[str, list[int]] | None, *, require_stable: bool = False) -> Row:
    """Return the body of an OffsetFetch request with the fields of all versions."""
    rows = None
    if topics is not None:
        rows = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
    return {
        "group_id": group,
        "topics": rows,
        "groups": [{"group_id": group, "topics": rows}],
        "require_stable": require_stable,
    }


def error_codes(answer: Row) -> ErrorCode | list[ErrorCode]:
    codes = [ErrorCode.of(row["error_code"]) for topic in answer["topics"] for row in topic["partitions"]]
    return codes[0] if len(set(codes)) == 1 else codes


@contextmanager
def wire_scene(
    *overrides: str, brokers: int = 1, topics: Sequence[str] = ("t", "u"), seed: int = 7
) -> Iterator[WireScene]:
    """Yield a cluster with topics of two partitions each."""
    small = f"offsets.topic.num.partitions={GROUPS_PARTITIONS}"
    cluster = SimulatedCluster(seed, brokers=brokers, overrides=[small, *overrides])
    cluster.start()
    scene = WireScene(cluster)
    for topic in topics:
        cluster.run_until(scene.plain_client.create_topic(topic, 2, replication_factor=brokers))
        cluster.wait_in_sync(topic, [0, 1])
    yield scene
    scene.close()
    cluster.stop()
