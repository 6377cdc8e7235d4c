"""Computes a draft of a plan from a request and the state of the cluster.

Placing 100,000 replicas takes seconds, so brokers call this in a thread (``Runtime.offload``). Order of calls:
``draft`` (a dry run ends here, with ``preview``), ``Draft.plan`` for the header, ``documents.creation`` for the znodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kreplica.cluster.plans import safety_checks, target_replicas
from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.documents import STEPS_MAX, encode_chunks, kept_request
from kreplica.cluster.plans.plan import Action, Plan, PlanState, Step
from kreplica.cluster.plans.requests import (
    AddBrokers,
    AddPartitions,
    ChangeReplicationFactor,
    Drain,
    PlanRequest,
    Reassign,
    Rebalance,
    RemovePartitions,
)
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan that has not been written yet.

    :param steps: in the order in which they are started.
    :param warnings: sentences for the operator.
    :param cordons: brokers to cordon with the plan (``znodes.cordoned_path``) unless they are already cordoned.
    :param encoded: encoded steps for ``documents.creation``.
    """

    request: PlanRequest
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    cordons: tuple[int, ...] = ()
    encoded: tuple[bytes, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes copied by all steps."""
        return sum(step.bytes for step in self.steps)

    def plan(self, plan_id: str, now_ms: int) -> Plan:
        """Return the header, in state ``pending``: ready for the controller to start the plan."""
        request, work = self.request, self.request.work
        return Plan(
            plan_id=plan_id,
            kind=request.kind,
            state=PlanState.PENDING,
            created_at_ms=now_ms,
            steps_count=len(self.steps),
            bytes=self.bytes,
            request=kept_request(request.body),
            comment=request.comment,
            throttle_bytes_per_second=request.throttle_bytes_per_second,
            moves_at_once=request.moves_at_once,
            force=request.force,
            wait_ms=work.wait_ms if isinstance(work, RemovePartitions) else None,
        )


def draft(request: PlanRequest, cluster: ClusterState) -> Draft:
    """Return a draft for a request.

    :raise KafkaError: the message contains the reason and the remedy: UNKNOWN_TOPIC_OR_PARTITION, BROKER_NOT_AVAILABLE,
        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS, REASSIGNMENT_IN_PROGRESS, or
        INVALID_REQUEST if records may be lost and ``force`` is not set.
    """
    steps = _steps(request, cluster)
    if len(steps) > STEPS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the plan has {len(steps)} steps, the limit is {STEPS_MAX}: split it by topics",
        )
    warnings = safety_checks.check(steps, cluster, force=request.force)
    warnings += _dead_broker_warnings(request, cluster) + _weight_warnings(request, steps, cluster)
    if not steps:
        warnings.append("The cluster already has the requested state: there is nothing to do.")
    cordons: tuple[int, ...] = ()
    if isinstance(request.work, Drain):
        cordons = tuple(broker for broker in request.work.brokers if broker not in cluster.cordoned)
    return Draft(request, tuple(steps), tuple(warnings), cordons, encode_chunks(steps))


def _steps(request: PlanRequest, cluster: ClusterState) -> list[Step]:
    match request.work:
        case Reassign() as work:
            return _moves(target_replicas.reassigned(work, cluster), cluster)
        case ChangeReplicationFactor() as work:
            return _moves(target_replicas.with_factor(work, cluster), cluster)
        case AddBrokers(brokers):
            _check_new(brokers, cluster)
            return _moves(target_replicas.balanced(None, cluster), cluster)
        case Drain(brokers) as work:
            _check_known(brokers, cluster)
            return _moves(target_replicas.drained(work, cluster), cluster)
        case Rebalance(topics, weights):
            return _moves(target_replicas.balanced(topics, cluster, weights), cluster)
        case AddPartitions() as work:
            rows = target_replicas.added(work, cluster)
            return [Step(Action.ADD, *key, (), replicas) for key, replicas in rows.items()]
        case RemovePartitions(topic, count):
            return _removals(topic, count, cluster)


def _moves(assignments: Mapping[TopicPartition, tuple[int, ...]], cluster: ClusterState) -> list[Step]:
    steps = []
    for key, after in sorted(assignments.items()):
        before = cluster.replicas(key)
        if after == before:
            continue
        new = [replica for replica in after if replica not in before]
        action = Action.REORDER if set(after) == set(before) else Action.MOVE
        steps.append(Step(action, *key, before, after, len(new) * cluster.sizes.get(key, 0)))
    return steps


def _removals(topic: str, count: int, cluster: ClusterState) -> list[Step]:
    """Return steps that remove the partitions with the highest numbers, highest first."""
    partitions = cluster.topic(topic).partitions
    if count >= len(partitions):
        text = f"{topic} has {len(partitions)} partitions: request a smaller number to remove some"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    numbers = sorted((number for number in partitions if number >= count), reverse=True)
    return [Step(Action.REMOVE, topic, number, partitions[number], ()) for number in numbers]


def _check_new(brokers: Collection[int], cluster: ClusterState) -> None:
    for broker in brokers:
        if broker not in cluster.brokers:
            raise _no_broker(f"broker {broker} is not alive: start it and try again")
        if broker in cluster.cordoned:
            raise _no_broker(f"broker {broker} is cordoned and gets no replicas: uncordon it and try again")


def _check_known(brokers: Collection[int], cluster: ClusterState) -> None:
    known = cluster.holders(cluster.assignments())
    unknown = [broker for broker in brokers if broker not in known]
    if unknown:
        raise _no_broker(f"brokers {unknown} are not alive and have no replicas: check the list of brokers")


def _dead_broker_warnings(request: PlanRequest, cluster: ClusterState) -> list[str]:
    if not isinstance(request.work, (AddBrokers, Rebalance)):
        return []
    dead = [broker for broker in cluster.holders(cluster.assignments()) if broker not in cluster.brokers]
    if not dead:
        return []
    return [f"Brokers {dead} are not alive and keep their replicas; drain the ones that will not come back."]


def _weight_warnings(request: PlanRequest, steps: Collection[Step], cluster: ClusterState) -> list[str]:
    """Return a sentence about the imbalance before and after, by the given weights."""
    work = request.work
    if not isinstance(work, Rebalance) or not work.weights:
        return []
    before = {key: replicas for key, replicas in cluster.assignments(work.topics).items() if key in work.weights}
    after = before | {step.key: step.after for step in steps if step.key in before}
    spans = []
    for assignments in (before, after):
        loads = dict.fromkeys(cluster.receivers, 0)
        for key, replicas in assignments.items():
            for replica in replicas:
                if replica in loads:
                    loads[replica] += work.weights[key]
        spans.append(f"{min(loads.values(), default=0)} to {max(loads.values(), default=0)}")
    return [f"The weight of a broker ranges from {spans[0]} now, and from {spans[1]} after the plan."]


def _no_broker(text: str) -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, text)
