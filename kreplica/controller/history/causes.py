"""Events as people say them, where whoever handles one knows nothing better to say of it."""

from __future__ import annotations

from kreplica.controller import event_types
from kreplica.controller.event_types import ElectionType, Event


def cause_of(event: Event) -> str:
    """What happened, as the beginning of a sentence."""
    match event:
        case event_types.ShutdownAsked(broker_id=broker):
            return f"broker {broker} asked to stop"
        case event_types.CommandRefused(broker_id=broker, command=command):
            return f"broker {broker} refused {command}"
        case event_types.ReplicasRecovered(broker_id=broker):
            return f"broker {broker} can use replicas again that had failed"
        case event_types.ElectionAsked(election_type=kind):
            return f"{'a preferred' if kind is ElectionType.PREFERRED else 'an unclean'} election was asked for"
        case event_types.AssignmentChanged(topic=topic):
            return f"the znode of topic {topic} was written"
        case event_types.RemovalDue(topic=topic, partition=partition):
            return f"{topic}-{partition} has been read-only for as long as was asked for"
    return _BY_NAME.get(type(event).__name__, type(event).__name__)


_BY_NAME = {
    "ControllerChanged": "the controller's office changed hands",
    "BrokersChanged": "the live brokers are others",
    "TopicsChanged": "topics came or went",
    "DeletionsChanged": "topics are to be deleted",
    "ReplicasStopped": "replicas were stopped",
    "RetryDeletions": "deletions are tried again",
    "RetryReplicas": "failed replicas are tried again",
    "ReassignmentsRequested": "/admin/reassign_partitions asks for replicas to move",
    "ReassignmentAsked": "replicas were asked to move",
    "PartitionRequestsChanged": "partitions were asked to be added or removed",
    "PlansChanged": "a plan was made, patched, cancelled or removed",
    "PlansDue": "a plan went on",
    "InSyncSetsChanged": "a leader wrote its in-sync set",
    "DirectoriesFailed": "a log directory failed",
    "TopicSettingsChanged": "settings of topics changed",
    "PreferredElectionAsked": "/admin/preferred_replica_election asks for preferred leaders",
    "BalanceLeaders": "preferred leaders had lost too many of their partitions",
}
