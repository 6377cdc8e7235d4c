"""JSON encoding of the controller's context, for the header of a journal file.

Some keys (such as ``begun``) differ from the names of the attributes, because they are part of the file format.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any

from kreplica.cluster import documents
from kreplica.controller.journal import plan_json
from kreplica.controller.journal.value_json import Json, decode_partition
from kreplica.controller.state.context import ControllerContext, ReadOnlyPeriod
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.model import LeaderAndIsr, TopicPartition

STEP = 500
"""Number of items copied before yielding; takes less than a millisecond."""


def copy_context(context: ControllerContext) -> Generator[None, None, ControllerContext]:
    """Copy a context step by step, because copying 100,000 partitions at once would block the reactor for 100 ms.

    The caller ensures that the context does not change between the steps.  Values are immutable, except for the sets of
    failed replicas and the states of replicas.  No object is allocated per item, which avoids runs of Python's garbage
    collector.
    """
    copy = ControllerContext(context.controller_epoch, context.epoch_znode_version)
    for name, value in list(vars(context).items()):
        if isinstance(value, (dict, set)):
            setattr(copy, name, (yield from _copy(value)))
        else:
            setattr(copy, name, value)
    for broker, partitions in context.failed_replicas.items():
        copy.failed_replicas[broker] = yield from _copy(partitions)
    for broker, states in context._replica_states.items():
        copy._replica_states[broker] = yield from _copy(states)
    for plan_id, run in context.plans.items():
        copy.plans[plan_id] = run.copy()
        yield
    return copy


def _copy(original: Any) -> Generator[None, None, Any]:
    """Copy a set, or a dict with its order."""
    copy = type(original)()
    items = iter(original.items() if isinstance(original, dict) else original)
    while len(copy) < len(original):
        copy.update(islice(items, STEP))
        yield
    return copy


def encode_context(context: ControllerContext) -> Json:
    """Encode a context; dicts become lists of rows, because the controller depends on their order."""
    return {
        "controller_epoch": context.controller_epoch,
        "epoch_znode_version": context.epoch_znode_version,
        "commands_count": context.commands_count,
        "brokers": [[b, documents.encode_broker(r).decode(), r.epoch] for b, r in context.brokers.items()],
        "topics": [[name, documents.encode_topic(each).decode()] for name, each in context.topics.items()],
        "topic_versions": _rows(context.topic_versions),
        "topic_births": _rows(context.topic_czxids),
        "leadership": [
            [str(p), s.leader, s.leader_epoch, s.isr, s.controller_epoch, s.partition_epoch, s.eligible_leader_replicas]
            for p, s in context.leadership.items()
        ],
        "deleting": sorted(context.deleting),
        "deletions_started": sorted(context.deletions_started),
        "begun": [[str(partition), sorted(replicas)] for partition, replicas in context.initial_replicas.items()],
        "known_epochs": _rows(context.known_epochs),
        "shutting_down": sorted(context.shutting_down),
        "failed": [
            [broker, [str(p) for p in sorted(partitions)]] for broker, partitions in context.failed_replicas.items()
        ],
        "read_only": [[str(p), each.since_s, each.wait_s] for p, each in context.read_only.items()],
        "reassignments_requested": [[str(p), ids] for p, ids in context.reassignments_requested.items()],
        "reassignments_version": context.reassignments_version,
        "unreadable": sorted(context.unreadable),
        "plans": [plan_json.encode_run(run) for run in context.plans.values()],
        "ended_plans": sorted(context.ended_plans),
        "plan_throttle": context.plan_throttle,
        "partition_states": [[str(p), state.name] for p, state in context._partition_states.items()],
        "replica_states": [
            [str(p), broker, state.name]
            for broker, states in context._replica_states.items()
            for p, state in states.items()
        ],
    }


def decode_context(value: Mapping[str, Any]) -> ControllerContext:
    context = ControllerContext(value["controller_epoch"], value["epoch_znode_version"])
    context.commands_count = value["commands_count"]
    context.brokers = {b: documents.decode_broker(b, text.encode(), epoch) for b, text, epoch in value["brokers"]}
    context.topics = {name: documents.decode_topic(name, text.encode()) for name, text in value["topics"]}
    context.topic_versions = dict(value["topic_versions"])
    context.topic_czxids = dict(value["topic_births"])
    context.leadership = {
        decode_partition(p): LeaderAndIsr(leader, epoch, tuple(isr), controller_epoch, version, tuple(eligible))
        for p, leader, epoch, isr, controller_epoch, version, eligible in value["leadership"]
    }
    context.deleting = set(value["deleting"])
    context.deletions_started = set(value.get("deletions_started", value["deleting"]))
    context.initial_replicas = {decode_partition(p): frozenset(replicas) for p, replicas in value["begun"]}
    context.known_epochs = dict(value["known_epochs"])
    context.shutting_down = set(value["shutting_down"])
    context.failed_replicas = {broker: _partitions(partitions) for broker, partitions in value["failed"]}
    context.read_only = {decode_partition(p): ReadOnlyPeriod(since, wait) for p, since, wait in value["read_only"]}
    requested = value["reassignments_requested"]
    context.reassignments_requested = {decode_partition(p): tuple(ids) for p, ids in requested}
    context.reassignments_version = value["reassignments_version"]
    context.unreadable = set(value["unreadable"])
    runs = [plan_json.decode_run(each) for each in value.get("plans", ())]
    context.plans = {run.plan.plan_id: run for run in runs}
    context.ended_plans = set(value.get("ended_plans", ()))
    context.plan_throttle = value.get("plan_throttle")
    for partition, state in value["partition_states"]:
        context.set_initial_states(decode_partition(partition), PartitionState[state], {})
    for partition, broker, state in value["replica_states"]:
        context._replica_states.setdefault(broker, {})[decode_partition(partition)] = ReplicaState[state]
    return context


def _rows(known: Mapping[Any, Any]) -> list[list[Any]]:
    return [[key, value] for key, value in known.items()]


def _partitions(texts: Iterable[str]) -> set[TopicPartition]:
    return {decode_partition(text) for text in texts}
