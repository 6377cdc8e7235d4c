"""The handler of each event type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kreplica.controller.event_types import (
    AlterReassignmentsRequested,
    AssignmentChanged,
    BalanceLeaders,
    BrokersChanged,
    CommandRefused,
    DeletionsChanged,
    DirectoriesFailed,
    ElectionRequested,
    Event,
    FinishDeletions,
    IsrChanged,
    ListReassignmentsRequested,
    PartitionRequestsChanged,
    PlansChanged,
    PlansDue,
    PreferredElectionRequested,
    ReassignmentsRequested,
    RemovalDue,
    ReplicasRecovered,
    ReplicasStopped,
    RetryDeletions,
    RetryReplicas,
    ShutdownRequested,
    TopicsChanged,
    TopicSettingsChanged,
)
from kreplica.controller.handlers import (
    broker_changes,
    command_errors,
    controlled_shutdown,
    failed_replicas,
    isr_changes,
    leader_balance,
    log_dir_events,
    partition_counts,
    reassignment,
    reassignment_requests,
    replica_removal,
    topic_creation,
    topic_deletion,
)
from kreplica.controller.plans import execution
from kreplica.controller.term import ControllerTerm

HANDLERS: Mapping[type[Event], Callable[[ControllerTerm, Any], Awaitable[Any]]] = {
    BrokersChanged: lambda term, _: broker_changes.brokers_changed(term),
    TopicsChanged: lambda term, _: topic_creation.topics_changed(term),
    AssignmentChanged: lambda term, event: topic_creation.assignment_changed(term, event.topic),
    DeletionsChanged: lambda term, _: topic_deletion.deletions_changed(term),
    ReplicasStopped: replica_removal.replicas_stopped,
    FinishDeletions: lambda term, event: topic_deletion.finish_deletions(term, event.topics),
    RetryDeletions: lambda term, _: replica_removal.retry_deletions(term),
    AlterReassignmentsRequested: reassignment.alter_reassignments,
    ListReassignmentsRequested: reassignment.list_reassignments,
    ReassignmentsRequested: lambda term, _: reassignment_requests.reassignments_requested(term),
    PartitionRequestsChanged: lambda term, _: partition_counts.handle_partition_requests(term),
    RemovalDue: lambda term, _: partition_counts.handle_partition_requests(term),
    PlansChanged: lambda term, _: execution.plans_changed(term),
    PlansDue: lambda term, _: execution.plans_due(term),
    CommandRefused: command_errors.command_refused,
    ReplicasRecovered: failed_replicas.replicas_recovered,
    RetryReplicas: lambda term, _: failed_replicas.retry_replicas(term),
    DirectoriesFailed: lambda term, _: log_dir_events.directories_failed(term),
    IsrChanged: lambda term, _: isr_changes.isr_changed(term),
    TopicSettingsChanged: lambda term, _: broker_changes.elect_offline_partitions(term),
    ShutdownRequested: controlled_shutdown.shutdown_requested,
    BalanceLeaders: lambda term, _: leader_balance.balance_leaders(term),
    PreferredElectionRequested: lambda term, _: leader_balance.preferred_election_requested(term),
    ElectionRequested: leader_balance.election_requested,
}
"""The handler of each event type; ``ControllerChanged`` is handled by the controller itself."""
