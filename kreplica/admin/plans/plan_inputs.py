"""Collects the cluster state from which a plan is created: ZooKeeper if it must be current, otherwise the metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kreplica.admin.cluster_state.published_metadata import PublishedMetadata, require_complete
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.plans.reading import PlanReader
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.cluster import documents, znodes
from kreplica.cluster.placement import failure_domains
from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.draft import Draft, draft
from kreplica.cluster.plans.plan import PlanState
from kreplica.cluster.plans.requests import (
    AddPartitions,
    ChangeReplicationFactor,
    PlanRequest,
    Reassign,
    Rebalance,
    RemovePartitions,
)
from kreplica.model import TopicAssignment, TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice
from kreplica.zookeeper import ZooKeeperClient, read_all

PREPARING_SECONDS_MAX = 10 * 60
"""Time after which an incomplete plan is considered abandoned; the controller then ends it."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Reads the current state for each new plan."""

    runtime: Runtime
    client: ZooKeeperClient
    published: PublishedMetadata
    registrations: Registrations
    plans: PlanReader
    sizes: ReplicaSizes

    async def draft(self, request: PlanRequest) -> tuple[Draft, ClusterState]:
        """Return the draft of a requested plan.

        :raise KafkaError: the plan is not possible (see ``draft``).
        :raise Problem: 409 while another plan is being written; 503 if this broker has no full metadata.
        """
        cluster = await self._read()
        sizes = await self._sizes(_partitions_to_measure(request, cluster), cluster)
        cluster = replace(cluster, sizes=sizes)
        return await self.runtime.offload.run(draft, request, cluster), cluster

    async def _read(self) -> ClusterState:
        published = require_complete(self.published)
        live = await self.registrations.live()
        cordoned = await self.client.get_children(znodes.CORDONED)
        in_sync: dict[TopicPartition, Collection[int]] = {}
        leaders: dict[TopicPartition, int] = {}
        time_slice = TimeSlice(self.runtime.reactor)
        for name, topic in published.topics.items():
            for number, partition in topic.partitions.items():
                key = TopicPartition(name, number)
                in_sync[key] = partition.isr
                if partition.leader >= 0:
                    leaders[key] = partition.leader
            if time_slice.is_over:
                await time_slice.next()
        return ClusterState(
            topics=await self._topics(),
            brokers=failure_domains(
                {broker: registration.rack for broker, registration in live.items()},
                {broker: registration.endpoints for broker, registration in live.items()},
            ),
            cordoned=sorted(int(name) for name in cordoned if name.isdecimal()),
            in_sync=in_sync,
            leaders=leaders,
            planned=await self._planned_partitions(),
        )

    async def _topics(self) -> dict[str, TopicAssignment]:
        names = await self.client.get_children(znodes.TOPICS)
        deleting = await self.client.get_children(znodes.DELETE_TOPICS)
        topics = sorted(set(names).difference(deleting))
        responses = await read_all(self.client, [znodes.topic_path(topic) for topic in topics])
        time_slice = TimeSlice(self.runtime.reactor)
        found = {}
        for topic, response in zip(topics, responses, strict=True):
            if isinstance(response, tuple):
                found[topic] = documents.decode_topic(topic, response[0])
            if time_slice.is_over:
                await time_slice.next()
        return found

    async def _planned_partitions(self) -> dict[TopicPartition, str]:
        now_ms = self.runtime.wall_clock_ms()
        time_slice = TimeSlice(self.runtime.reactor)
        planned: dict[TopicPartition, str] = {}
        for read in await self.plans.open_plans():
            plan = read.plan
            if plan.state is PlanState.PREPARING:
                if now_ms - plan.created_at_ms < PREPARING_SECONDS_MAX * 1000:
                    raise _being_written(plan.plan_id)
                continue
            async for row in self.plans.steps(plan.plan_id):
                if row.outcome.state.is_open:
                    planned[row.step.key] = plan.plan_id
                if time_slice.is_over:
                    await time_slice.next()
        return planned

    async def _sizes(
        self, partitions: Collection[TopicPartition], cluster: ClusterState
    ) -> Mapping[TopicPartition, int]:
        """Return the size of the leader's replica, from which moves copy, of each partition that has a leader."""
        leaders = [(key, cluster.leaders[key]) for key in partitions if key in cluster.leaders]
        sizes = await self.sizes.of(leaders)
        return {key: size for (key, _), size in sizes.items()}


def _partitions_to_measure(request: PlanRequest, cluster: ClusterState) -> list[TopicPartition]:
    """Return the partitions whose sizes are needed."""
    match request.work:
        case Reassign(assignments):
            return list(assignments)
        case AddPartitions() | RemovePartitions():
            return []
        case ChangeReplicationFactor(topics=topics) | Rebalance(topics=topics) if topics is not None:
            return list(cluster.assignments([topic for topic in topics if topic in cluster.topics]))
    return list(cluster.assignments())


def _being_written(plan_id: str) -> Problem:
    text = f"{plan_id} is being written and may affect the same partitions"
    what_to_do = "Try again in a moment; delete the plan if the broker that was writing it failed."
    return Problem(409, "REASSIGNMENT_IN_PROGRESS", text, what_to_do=what_to_do)
