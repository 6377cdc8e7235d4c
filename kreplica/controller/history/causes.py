"""Default texts for the causes of decisions, by event type."""

from __future__ import annotations

from kreplica.controller import event_types
from kreplica.controller.event_types import ElectionType, Event


def cause_of(event: Event) -> str:
    """Return a description of an event, as the beginning of a sentence."""
    match event:
        case event_types.ShutdownRequested(broker_id=broker):
            return f"broker {broker} requested a controlled shutdown"
        case event_types.CommandRefused(broker_id=broker, command=command):
            return f"broker {broker} rejected {command}"
        case event_types.ReplicasRecovered(broker_id=broker):
            return f"broker {broker} recovered failed replicas"
        case event_types.ElectionRequested(election_type=kind):
            return f"{'a preferred' if kind is ElectionType.PREFERRED else 'an unclean'} election was requested"
        case event_types.AssignmentChanged(topic=topic):
            return f"the znode of topic {topic} was written"
        case event_types.RemovalDue(topic=topic, partition=partition):
            return f"{topic}-{partition} was read-only for the requested time"
    return _BY_NAME.get(type(event).__name__, type(event).__name__)


_BY_NAME = {
    "ControllerChanged": "the controller changed",
    "BrokersChanged": "the set of live brokers changed",
    "TopicsChanged": "topics were created or removed",
    "DeletionsChanged": "topic deletions were requested",
    "ReplicasStopped": "replicas were stopped",
    "FinishDeletions": "the removal of deleted topics continued",
    "RetryDeletions": "deletions are retried",
    "RetryReplicas": "failed replicas are retried",
    "ReassignmentsRequested": "/admin/reassign_partitions requests reassignments",
    "AlterReassignmentsRequested": "reassignments were requested",
    "PartitionRequestsChanged": "partition additions or removals were requested",
    "PlansChanged": "a plan was created, patched, cancelled or removed",
    "PlansDue": "a plan continued",
    "IsrChanged": "a leader changed its ISR",
    "DirectoriesFailed": "a log directory failed",
    "TopicSettingsChanged": "topic configurations changed",
    "PreferredElectionRequested": "/admin/preferred_replica_election requests preferred leaders",
    "BalanceLeaders": "too many partitions were not led by their preferred leaders",
}
