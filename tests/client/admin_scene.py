"""A simulated cluster for tests of the admin client, and requests of the applications that use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from kreplica.client import Admin, Cluster, TopicPartition
from kreplica.client.client_runtime import runtime_of
from kreplica.client_core.errors import BrokerRefused, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.errors import ErrorCode
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.messages import Api
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned

T = TypeVar("T")


class AdminScene:
    """Three simulated brokers, and a separate host with an admin client that can also send raw requests."""

    def __init__(self) -> None:
        self.brokers = SimulatedCluster(
            seed=11,
            brokers=3,
            racks={1: "a", 2: "b", 3: "a"},
            overrides=["transaction.partition.verification.enable=false"],
        )
        self.brokers.start()
        runtime = self.brokers.host("application").runtime
        self.cluster = Cluster(self.brokers.bootstrap_servers, runtime=runtime_of(runtime))
        self.admin = Admin(self.cluster)
        self.run = self.brokers.run_until

    def close(self) -> None:
        self.run(self.cluster.close())
        self.brokers.stop()

    async def until(self, query: Callable[[], Awaitable[T]], is_expected: Callable[[T], bool]) -> None:
        """Repeat a query until its result is the expected one."""

        async def attempt() -> None:
            result = await query()
            if not is_expected(result):
                raise BrokerRefused(ErrorCode.REQUEST_TIMED_OUT, f"{result}")

        await self.cluster.retrying(attempt)

    # --- requests of applications ---

    async def produce(self, partition: TopicPartition, values: Sequence[bytes], **batch: Any) -> None:
        """Write records with timestamps from 1000 ms, one millisecond apart."""
        builder = BatchBuilder(**batch)
        for index, value in enumerate(values):
            builder.append(1000 + index, None, value)
        body = {
            "transactional_id": "t" if batch.get("transactional") else None,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {
                    "name": partition.topic,
                    "partition_data": [{"index": partition.partition, "records": builder.build()}],
                }
            ],
        }

        async def attempt() -> None:
            # The leader of a new partition may refuse requests at first, although other brokers already name it.
            connection = await self.cluster.connection(await self.cluster.leader(partition))
            response = await self.cluster.request(connection, messages.PRODUCE, body, at_most=11)
            check(response["responses"][0]["partition_responses"][0], "records")

        await self.cluster.retrying(attempt)

    async def begin_transaction(self, transactional_id: str, partition: TopicPartition | None) -> tuple[int, int]:
        """Begin a transaction, add the partition to it, and return the producer ID and epoch."""
        body: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": 600_000}
        response = await self.request_coordinator(
            CoordinatorKind.TRANSACTION, transactional_id, messages.INIT_PRODUCER_ID, body
        )
        producer_id, epoch = response["producer_id"], response["producer_epoch"]
        if partition is not None:
            body = {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": partition.topic, "partitions": [partition.partition]}],
            }
            api = messages.ADD_PARTITIONS_TO_TXN
            await self.request_coordinator(CoordinatorKind.TRANSACTION, transactional_id, api, body, at_most=3)
        return producer_id, epoch

    async def join_classic(self, group_id: str, instance_id: str, topic: str) -> str:
        """Join a group as a static member that owns partition 0, and return the member ID."""
        subscription = build_versioned(SUBSCRIPTION, 1, {"topics": [topic]})
        body = {
            "group_id": group_id,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": "",
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}],
        }
        joined = await self.request_coordinator(CoordinatorKind.GROUP, group_id, messages.JOIN_GROUP, body)
        assignment = build_versioned(ASSIGNMENT, 1, {"assigned_partitions": [{"topic": topic, "partitions": [0]}]})
        member = {
            "group_id": group_id,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": instance_id,
        }
        assignments = [{"member_id": joined["member_id"], "assignment": assignment}]
        sync = member | {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
        await self.request_coordinator(CoordinatorKind.GROUP, group_id, messages.SYNC_GROUP, sync)
        return str(joined["member_id"])

    async def heartbeat_consumer(self, group_id: str, member_id: str, topic: str, epoch: int) -> None:
        """Send a heartbeat of the consumer protocol: epoch 0 joins, -1 leaves."""
        body = {
            "group_id": group_id,
            "member_id": member_id,
            "member_epoch": epoch,
            "rebalance_timeout_ms": 6000,
            "subscribed_topic_names": [topic],
            "topic_partitions": [],
        }
        await self.request_coordinator(CoordinatorKind.GROUP, group_id, messages.CONSUMER_GROUP_HEARTBEAT, body)

    async def request_coordinator(
        self, kind: CoordinatorKind, key: str, api: Api, body: dict[str, Any], **options: Any
    ) -> Any:
        """Send a request to a coordinator and return its response; raise an error if it contains an error code."""

        async def attempt(connection: Any) -> dict[str, Any]:
            response = await self.cluster.request(connection, api, body, **options)
            if "error_code" in response:
                check(response, api.name)
            return response

        return await self.cluster.at_coordinator(kind, key, attempt)


def error_codes(failed: Any) -> dict[Any, ErrorCode]:
    """Return the error code of each failed item."""
    return {item: error.code for item, error in failed.items()}
