"""``/v1/why``: explains the state of a partition, group, plan or broker: its cause, its blockers and possible
actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import quote

from kreplica.admin.cluster_state.merged_timeline import AuditEventSource, documents_of, merged
from kreplica.admin.cluster_state.published_metadata import BrokerConnections
from kreplica.admin.health.broker_facts import BrokerFacts
from kreplica.admin.health.faults import Fault, by_importance
from kreplica.admin.health.schemas import FAULT
from kreplica.admin.http.api import Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import IN_BROKER, IN_PARTITION, IN_TOPIC, TIME_MS, listing, record
from kreplica.admin.peers.forwarding import OtherBrokers, PeerResponses
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.admin.plans.reading import NumberedStep, PlanReader
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.admin.resources import timeline
from kreplica.admin.why.brokers import explain_broker, explain_unreachable
from kreplica.admin.why.decisions import Memory, decision_from_znode, merge_decisions, remembered_decisions
from kreplica.admin.why.explanation import DECIDED, WHY, Advice, Explanation
from kreplica.admin.why.groups import NAMED_MAX, GroupFacts, GroupPartition, explain_group
from kreplica.admin.why.partition_facts import PartitionFactsReader
from kreplica.admin.why.partitions import explain_partition
from kreplica.admin.why.plans import EXPLAINED_MAX, explain_plan
from kreplica.client.errors import ClientError
from kreplica.cluster import documents, znodes
from kreplica.cluster.plans.plan import StepState
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.wire.messages import LIST_GROUPS
from kreplica.zookeeper import ZooKeeperClient, read_all

DECIDED_SHOWN = 20
STEPS_SEARCHED_MAX = 5000
"""Maximum number of unfinished steps searched for moves in progress; the controller starts steps in order."""

REQUEST_TIMEOUT_S = 3.0

REMEMBERED = record(
    {
        "decided": listing(DECIDED),
        "faults": {**listing(FAULT), "description": "The faults of this broker that affect its replica."},
        "left_ms": {
            "type": "object",
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": TIME_MS,
            "description": "When this broker saw each absent broker leave, by broker ID.",
        },
    },
    title="Remembered",
)
PEER_REMEMBERED = PeerResponseValidator(REMEMBERED)
PEER_WHY = PeerResponseValidator(WHY)

_UNKNOWN_PARTITION = {404: "The partition does not exist."}


class GroupFactsSource(Protocol):
    """Group state that a broker has in memory."""

    def home_of(self, group: str) -> tuple[TopicPartition, int | None]:
        """Return the offsets partition of a group, and its leader, which coordinates the group; None without a leader.

        :raise KafkaError: GROUP_ID_NOT_FOUND if no group exists.
        """

    async def facts(self, group: str) -> GroupFacts:
        """Return the facts of a group coordinated here.

        :raise KafkaError: GROUP_ID_NOT_FOUND, NOT_COORDINATOR.
        """


class BrokerHealth(Protocol):
    """The faults of this broker."""

    async def faults(self) -> Sequence[Fault]:
        """Return all current faults."""

    async def faults_of(self, key: TopicPartition) -> Sequence[Fault]:
        """Return the faults that affect the replica of a partition."""

    def facts(self) -> BrokerFacts:
        """Return the stalls of the event loop and the certificates."""


@dataclass(frozen=True, slots=True)
class LocalSources:
    """Data that this broker has recorded.

    :param memory: its decisions.
    :param audit_events: its events.
    :param health: its faults.
    """

    broker_id: int
    memory: Memory
    audit_events: AuditEventSource
    groups: GroupFactsSource
    health: BrokerHealth


@dataclass(frozen=True, slots=True)
class ClusterSources:
    """Readers of the state of the cluster."""

    client: ZooKeeperClient
    registrations: Registrations
    connections: BrokerConnections
    partitions: PartitionFactsReader
    plans: PlanReader
    sizes: ReplicaSizes


class Why:
    """Collects facts from ZooKeeper, from the brokers involved and from the memory of all brokers."""

    def __init__(self, runtime: Runtime, local: LocalSources, sources: ClusterSources, others: OtherBrokers) -> None:
        self._now_ms = runtime.wall_clock_ms
        self._local = local
        self._sources = sources
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return one route for each kind of subject, and the route of this broker's memory."""
        return (
            Route(
                "GET",
                "/v1/why/partitions/{topic}/{partition}",
                self.partition,
                "Explain the state of a partition.",
                response=WHY,
                query=(IN_TOPIC, IN_PARTITION),
                problems=_UNKNOWN_PARTITION,
            ),
            Route(
                "GET",
                "/v1/why/groups/{group:path}",
                self.group,
                "Explain the state of a group.",
                response=WHY,
                problems={404: "The group does not exist."},
            ),
            Route(
                "GET",
                "/v1/why/plans/{plan}",
                self.plan,
                "Explain the progress of a plan.",
                response=WHY,
                problems={404: "The plan does not exist."},
            ),
            Route(
                "GET",
                "/v1/why/brokers/{broker_id}",
                self.broker,
                "Explain the faults of a broker, such as a full or failed disk, damaged logs, a lost connection to "
                "ZooKeeper, or stalls of its event loop.",
                response=WHY,
                query=(IN_BROKER,),
            ),
            Route(
                "GET",
                "/v1/decisions/{topic}/{partition}",
                self.local_decisions,
                "Decisions of this broker about a partition.",
                response=REMEMBERED,
                query=(IN_TOPIC, IN_PARTITION),
            ),
        )

    # --- partitions --------------------------------------------------------------------------------------------------

    async def partition(self, call: Call) -> JsonResponse:
        """``GET /v1/why/partitions/{topic}/{partition}``."""
        key = _key(call)
        facts = await self._sources.partitions.read(key)
        path = f"/v1/decisions/{quote(key.topic)}/{key.partition}"

        async def read_local() -> dict[str, Any]:
            return await self._remembered(key)

        responses = await self._others.request_all(call, path, PEER_REMEMBERED, read_local)
        decided = merge_decisions(row for document in responses.documents.values() for row in document["decided"])
        known_by_leader_epoch = {row["leader_epoch"] for row in decided}
        if facts.state is not None and facts.state.leader_epoch not in known_by_leader_epoch:
            decided.insert(0, decision_from_znode(facts.state, facts.written_at_ms))
        faults = {broker: document["faults"] for broker, document in responses.documents.items()}
        explanation = explain_partition(
            facts, decided[:DECIDED_SHOWN], _left_ms(responses), responses.problems, faults
        )
        return JsonResponse(explanation.document())

    async def local_decisions(self, call: Call) -> JsonResponse:
        """``GET /v1/decisions/{topic}/{partition}``."""
        return JsonResponse(await self._remembered(_key(call)))

    async def _remembered(self, key: TopicPartition) -> dict[str, Any]:
        memory = self._local.memory
        left_ms = {str(broker): at_ms for broker, at_ms in sorted(memory.left_ms.items())}
        faults = by_importance(fault.document() for fault in await self._local.health.faults_of(key))
        return {"decided": remembered_decisions(memory, key), "faults": faults, "left_ms": left_ms}

    # --- groups ------------------------------------------------------------------------------------------------------

    async def group(self, call: Call) -> JsonResponse:
        """``GET /v1/why/groups/{group}``."""
        group = call.path["group"]
        home, coordinator = self._local.groups.home_of(group)
        if coordinator is None:
            return JsonResponse(_without_coordinator(group, home).document())
        if coordinator == self._local.broker_id or call.forwarded:
            return JsonResponse((await self._explained_locally(group)).document())
        try:
            path = f"/v1/why/groups/{quote(group, safe='')}"
            return JsonResponse(await self._others.request(coordinator, call, path, PEER_WHY))
        except Problem as problem:
            if problem.status == 404:
                raise
            return JsonResponse((await self._explained_by_kafka_api(group, coordinator, problem)).document())

    async def _explained_locally(self, group: str) -> Explanation:
        facts = await self._local.groups.facts(group)
        behind = sorted((each for each in facts.partitions if each.lag), key=lambda each: -(each.lag or 0))
        detailed = {each.name: await self._with_transactions(each) for each in behind[:NAMED_MAX]}
        partitions = [detailed.get(each.name, each) for each in facts.partitions]
        return explain_group(replace(facts, partitions=partitions))

    async def _with_transactions(self, partition: GroupPartition) -> GroupPartition:
        if partition.leader is None:
            return partition
        key = TopicPartition(partition.topic, partition.partition)
        return replace(partition, transactions=await self._sources.partitions.transactions(key, partition.leader))

    async def _explained_by_kafka_api(self, group: str, coordinator: int, problem: Problem) -> Explanation:
        """Explain a group from its coordinator's Kafka API, because the admin API failed."""
        problems = [f"Broker {coordinator}, which coordinates the group, did not explain its state: {problem.detail}"]
        try:
            response = await self._sources.connections.request(
                coordinator, LIST_GROUPS, {"states_filter": [], "types_filter": []}, timeout_s=REQUEST_TIMEOUT_S
            )
        except ClientError as error:
            problems.append(f"It does not respond to Kafka requests either: {error}")
            summary = f"Broker {coordinator} coordinates group {group} but does not respond."
            advice = [Advice(f"Check whether broker {coordinator} hangs or is unreachable.")]
            return Explanation(f"group {group}", "unknown", summary, you_can=advice, problems=problems)
        for row in response["groups"]:
            if row["group_id"] == group:
                facts = GroupFacts(group, row.get("group_type", ""), row.get("group_state", ""), coordinator, None)
                return explain_group(facts, problems)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group)

    # --- plans -------------------------------------------------------------------------------------------------------

    async def plan(self, call: Call) -> JsonResponse:
        """``GET /v1/why/plans/{plan}``."""
        sources = self._sources
        read = await sources.plans.plan(call.path["plan"])
        moving: list[NumberedStep] = []
        if not read.plan.state.is_ended and read.progress.moving:
            searched = 0
            async for row in sources.plans.unfinished_steps(read.plan.plan_id):
                if row.outcome.state is StepState.MOVING:
                    moving.append(row)
                searched += 1
                if len(moving) >= min(read.progress.moving, EXPLAINED_MAX) or searched == STEPS_SEARCHED_MAX:
                    break
        live = sorted(await sources.registrations.live())
        copying = [(row.step.key, broker) for row in moving for broker in row.step.receiving_brokers if broker in live]
        (controller,) = await read_all(sources.client, [znodes.CONTROLLER])
        decided, problems = await self._events_of(f"plan {read.plan.plan_id}", call)
        explanation = explain_plan(
            read,
            moving,
            await sources.sizes.of(copying),
            live,
            documents.decode_controller(controller[0]) if isinstance(controller, tuple) else -1,
            decided,
            self._now_ms(),
            problems,
        )
        return JsonResponse(explanation.document())

    # --- brokers -----------------------------------------------------------------------------------------------------

    async def broker(self, call: Call) -> JsonResponse:
        """``GET /v1/why/brokers/{broker_id}``."""
        broker_id = int(call.path["broker_id"])
        if broker_id == self._local.broker_id:
            health = self._local.health
            explanation = explain_broker(broker_id, await health.faults(), health.facts())
            return JsonResponse(explanation.document())
        try:
            return JsonResponse(await self._others.request(broker_id, call, f"/v1/why/brokers/{broker_id}", PEER_WHY))
        except Problem as problem:
            if call.forwarded:
                raise
            is_registered = broker_id in await self._sources.registrations.live()
            left_ms = self._local.memory.left_ms.get(broker_id)
            explanation = explain_unreachable(broker_id, problem.detail, left_ms, is_registered=is_registered)
            return JsonResponse(explanation.document())

    async def _events_of(self, subject: str, call: Call) -> tuple[list[dict[str, Any]], Sequence[str]]:
        async def read_local() -> dict[str, Any]:
            return {"entries": documents_of(self._local.audit_events, limit=DECIDED_SHOWN, subject=subject)}

        query = {"limit": DECIDED_SHOWN, "subject": subject}
        responses = await self._others.request_all(call, timeline.PATH, timeline.PEER_RESPONSE, read_local, query=query)
        return [
            {
                "at_ms": entry["at_ms"],
                "broker_id": entry["broker_id"],
                "controller_epoch": entry["controller_epoch"],
                "event": entry["kind"],
                "change": entry["text"],
                "leader_epoch": None,
                "told": [],
                "unanswered": [],
            }
            for entry in merged(row for each in responses.documents.values() for row in each["entries"])
        ][:DECIDED_SHOWN], responses.problems


def _key(call: Call) -> TopicPartition:
    return TopicPartition(call.path["topic"], int(call.path["partition"]))


def _left_ms(responses: PeerResponses) -> Mapping[int, int]:
    """Return when each broker left, by the earliest observation."""
    found: dict[int, int] = {}
    for document in responses.documents.values():
        for broker, at_ms in document["left_ms"].items():
            found[int(broker)] = min(at_ms, found.get(int(broker), at_ms))
    return found


def _without_coordinator(group: str, home: TopicPartition) -> Explanation:
    return Explanation(
        subject=f"group {group}",
        state="no_coordinator",
        summary=f"Group {group} has no coordinator: {home}, which stores its state, has no leader.",
        waits_for=[f"A leader of {home}."],
        you_can=[
            Advice(f"Read the explanation of {home}.", ("GET", f"/v1/why/partitions/{home.topic}/{home.partition}")),
        ],
        facts={"home": {"topic": home.topic, "partition": home.partition}},
    )
