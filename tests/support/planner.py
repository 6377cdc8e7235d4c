"""An administrator of a simulated cluster that creates plans by writing their znodes, from its own host.

planner = Planner(cluster)
plan_id = planner.make({"kind": "drain", "brokers": [1]})
planner.until_ended(plan_id)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kreplica.cluster import znodes
from kreplica.cluster.plans import documents
from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.draft import draft
from kreplica.cluster.plans.plan import Plan, PlanState, StepState
from kreplica.cluster.plans.requests import read_request
from kreplica.cluster.plans.throttle import decode_throttle
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.testing.cluster.cluster import ZOOKEEPER_HOST, ZOOKEEPER_PORT, SimulatedCluster
from kreplica.testing.cluster.state import assignment_of, state_of, znode
from kreplica.zookeeper import Create, SetData, ZooKeeperClient

ENDED_WITHIN_S = 180.0


class Planner:
    """Creates, changes and reads plans.

    :param cluster: a running cluster.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        runtime = cluster.simulation.host("planner").runtime
        self._client = ZooKeeperClient(
            runtime.reactor, f"{ZOOKEEPER_HOST}:{ZOOKEEPER_PORT}", random=runtime.random, session_timeout_ms=20_000
        )
        self._now_ms = runtime.wall_clock_ms
        cluster.run_until(self._client.start())

    def make(self, body: Mapping[str, Any], *, topics: list[str]) -> str:
        """Create a plan from a request body, as the admin API does.

        :param topics: topics that the plan may move.
        :return: the plan's ID.
        :raise KafkaError: the request was rejected.
        """
        drafted = draft(read_request(body), self.cluster_state(topics))
        data, stat = self._cluster.run_until(self._client.get_data(znodes.PLANS))
        number = documents.decode_last_number(data) + 1
        plan = drafted.plan(documents.plan_id(number), self._now_ms())
        (batch,) = documents.creation(plan, drafted.steps)
        operations: list[Any] = [SetData(znodes.PLANS, documents.encode_last_number(number), stat.version)]
        operations += [Create(path, data) for path, data in batch]
        operations += [Create(znodes.cordoned_path(broker), b"") for broker in drafted.cordons]
        self._cluster.run_until(self._client.multi(operations))
        return plan.plan_id

    def cluster_state(self, topics: list[str]) -> ClusterState:
        """Read the cluster's state from its znodes."""
        assignments = {topic: assignment_of(self._cluster, topic) for topic in topics}
        known = {topic: assignment for topic, assignment in assignments.items() if assignment is not None}
        keys = [TopicPartition(topic, number) for topic, each in known.items() for number in each.partitions]
        states = {key: state for key in keys if (state := state_of(self._cluster, key)) is not None}
        return ClusterState(
            topics=known,
            brokers={number: None for number, machine in self._cluster.brokers.items() if machine.running},
            cordoned=[int(name) for name in self._children(znodes.CORDONED)],
            in_sync={key: state.isr for key, state in states.items()},
            leaders={key: state.leader for key, state in states.items() if state.leader != NO_LEADER},
            sizes=dict.fromkeys(keys, 1),
            planned=self._planned(),
        )

    def _children(self, path: str) -> list[str]:
        node = znode(self._cluster, path)
        return sorted(node.children or ()) if node is not None else []

    def _planned(self) -> dict[TopicPartition, str]:
        """Return the partitions of plans that have not ended."""
        plan_ids: dict[TopicPartition, str] = {}
        for plan_id in self._children(znodes.PLANS):
            parent = znodes.plan_steps_path(plan_id)
            for path in [f"{parent}/{name}" for name in self._children(parent)]:
                node = znode(self._cluster, path)
                if node is not None and not self.plan(plan_id).state.is_ended:
                    plan_ids |= {step.key: plan_id for step in documents.decode_steps(path, node.data or b"")}
        return plan_ids

    def change(self, plan_id: str, **changes: Any) -> None:
        """Change or cancel a plan, as the admin API does."""

        async def write() -> None:
            path = znodes.plan_path(plan_id)
            data, stat = await self._client.get_data(path)
            changed = replace(documents.decode_plan(plan_id, data), **changes)
            await self._client.set_data(path, documents.encode_plan(changed), stat.version)

        self._cluster.run_until(write())

    def cancel(self, plan_id: str, *, rollback: bool = False) -> None:
        """Cancel a plan."""
        self.change(plan_id, state=PlanState.CANCELLING, rollback=rollback)

    def plan(self, plan_id: str) -> Plan:
        """Read the plan's header from its znode."""
        node = znode(self._cluster, znodes.plan_path(plan_id))
        assert node is not None, f"plan {plan_id} does not exist"
        return documents.decode_plan(plan_id, node.data or b"")

    def count(self, plan_id: str, state: StepState) -> int:
        """Return the number of the plan's steps in this state."""
        path = znodes.plan_progress_path(plan_id)
        node = znode(self._cluster, path)
        assert node is not None, f"plan {plan_id} does not exist"
        return int(getattr(documents.decode_progress(path, node.data or b""), state.value))

    @property
    def throttle(self) -> int | None:
        """Return the throttle that brokers apply to replicas that are being added."""
        node = znode(self._cluster, znodes.PLAN_THROTTLE)
        return decode_throttle(b"" if node is None else node.data or b"")

    def until_ended(self, plan_id: str, timeout_s: float = ENDED_WITHIN_S) -> PlanState:
        """Run the simulation until the plan has ended, and return its state."""
        self._cluster.run_until(lambda: self.plan(plan_id).state.is_ended, timeout_s)
        return self.plan(plan_id).state

    def close(self) -> None:
        """Close the session."""
        self._cluster.run_until(self._client.close())
