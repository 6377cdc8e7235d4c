"""Kinds of faults, and the fault as a value.  Imports no HTTP, because brokers without an admin API report metrics too.

A fault names an object and a cause.  Faults of a broker are found by that broker (``service.metrics.local_health``);
those of the cluster follow from the published metadata (``cluster_faults``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kreplica.model import TopicPartition

EXAMPLES_MAX = 5
"""Maximum number of partitions that one fault names; the others are only counted."""

BAD, WARNING = "bad", "warn"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    :param severity: ``BAD`` if records cannot be written, read or kept as configured; otherwise ``WARNING``.
    :param description: one sentence for the reference.
    :param advice: possible action of an operator, a sentence.
    """

    severity: str
    description: str
    advice: str


KINDS: Mapping[str, FaultKind] = {
    "no_leader": FaultKind(
        BAD,
        "Partitions have no leader: they cannot be written or read.",
        "Start the brokers that hold the replicas; the explanation of a partition names them.",
    ),
    "no_controller": FaultKind(
        BAD,
        "No broker is the controller: leaders and replicas cannot change.",
        "Check that ZooKeeper is reachable from the brokers.",
    ),
    "zookeeper_lost": FaultKind(
        BAD,
        "A broker has no connection to ZooKeeper; when its session expires, it leads no partition.",
        "Check the ZooKeeper servers and the network between them and the broker.",
    ),
    "failed_disk": FaultKind(
        BAD,
        "A log directory failed: its replicas are offline.",
        "Repair or replace the disk, then restart the broker.",
    ),
    "full_disk": FaultKind(
        BAD,
        "The disk of a log directory is full: appends are rejected with KAFKA_STORAGE_ERROR.",
        "Free space on the disk, shorten the retention of large topics, or move replicas to other brokers.",
    ),
    "rejected_appends": FaultKind(
        BAD,
        "Appends were rejected for lack of file descriptors, memory or quota.",
        "Raise the limit named in the cause; the broker does not need a restart.",
    ),
    "unopened_replicas": FaultKind(
        BAD,
        "Replicas could not be opened for lack of space or file descriptors.",
        "Free space or raise the limit on open files; the broker opens the replicas when they are requested.",
    ),
    "damaged_log": FaultKind(
        BAD,
        "Stored batches are corrupt or unreadable.",
        "Check the disk. A replica with another in-sync copy is copied again; otherwise the damaged batches stay "
        "excluded from reads.",
    ),
    "under_min_isr": FaultKind(
        BAD,
        "Partitions have too few in-sync replicas: writes with acks=all are rejected.",
        "Start the brokers of the missing replicas; the explanation of a partition names them.",
    ),
    "certificate_expired": FaultKind(
        BAD,
        "A certificate of a listener has expired.",
        "Replace the files of these certificates: the broker reads them again within moments.",
    ),
    "broker_gone": FaultKind(
        WARNING,
        "A broker that holds replicas is not registered: it stopped, died or lost its ZooKeeper session.",
        "Start the broker, or move its replicas to other brokers.",
    ),
    "broker_silent": FaultKind(
        WARNING,
        "A registered broker does not respond to the other brokers' admin requests.",
        "Check whether the broker hangs or is unreachable.",
    ),
    "under_replicated": FaultKind(
        WARNING,
        "Partitions are under-replicated.",
        "Start the brokers of the missing replicas; the explanation of a partition names them.",
    ),
    "leader_unreachable": FaultKind(
        WARNING,
        "A broker cannot fetch from the leader of its replicas.",
        "Check the network between both brokers, and whether the leader hangs.",
    ),
    "slow_disk": FaultKind(
        WARNING,
        "A sync to the disk of a log directory took longer than 2 seconds in the last minute.",
        "Check the disk; move replicas to other brokers if it stays slow.",
    ),
    "throttled_replicas": FaultKind(
        WARNING,
        "A replication throttle limits how fast replicas catch up.",
        "Raise the throttle of the plan, or the broker's replication throttle.",
    ),
    "stalling": FaultKind(
        WARNING,
        "The event loop of a broker was blocked in the last 5 minutes.",
        "Make the clients that caused the stalls send smaller requests, or disconnect them.",
    ),
    "certificate_expiring": FaultKind(
        WARNING,
        "A certificate of a listener expires soon.",
        "Replace the files of these certificates: the broker reads them again within moments.",
    ),
}
"""Kinds of faults, the most important first."""

CLUSTER_KINDS = ("no_leader", "no_controller", "broker_gone", "broker_silent")
"""Kinds of faults that affect the whole cluster, not one broker."""

PUBLISHED_KINDS = ("under_min_isr", "under_replicated")
"""Kinds that leaders also report, but that are counted from the published metadata for the cluster."""

BROKER_ONLY_KINDS = ("stalling",)
"""Kinds shown only in the explanation and the metrics of the broker, since a busy machine always has some."""

CERTIFICATE_KINDS = ("certificate_expired", "certificate_expiring")
"""Kinds of faults of a broker's listener."""

BROKER_KINDS = tuple(kind for kind in KINDS if kind not in CLUSTER_KINDS)
"""Kinds of faults that a broker reports about itself."""

_ORDER = {kind: index for index, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; see ``schemas.FAULT``.

    :param kind: one of ``KINDS``.
    :param partitions: the affected partitions; ``document`` names the first few.
    :param detail: distinguishes faults of the same kind on one broker, such as a path; not part of ``document``.
    """

    kind: str
    subject: str
    text: str
    why: str | None = None
    partitions: Sequence[TopicPartition] = ()
    detail: str = ""

    @property
    def severity(self) -> str:
        return KINDS[self.kind].severity

    def document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "severity": self.severity,
            "subject": self.subject,
            "text": self.text,
            "count": len(self.partitions),
            "examples": [str(key) for key in self.partitions[:EXAMPLES_MAX]],
            "why": self.why,
        }


def by_importance(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return documents of faults, the most important first; unknown kinds of newer brokers are last."""
    return sorted(documents, key=lambda each: (_ORDER.get(each["kind"], len(_ORDER)), each["subject"]))


def broker_fault(
    kind: str, broker_id: int, text: str, partitions: Sequence[TopicPartition] = (), *, detail: str = ""
) -> Fault:
    """Return a fault of a broker; ``/v1/why/brokers`` explains it."""
    return Fault(kind, f"broker {broker_id}", text, f"/v1/why/brokers/{broker_id}", partitions, detail)


def partitions_fault(
    kind: str, partitions: Sequence[TopicPartition], singular: str, plural: str, consequence: str = ""
) -> Fault:
    """Return a fault that affects partitions; its explanation is that of the first one.

    :param singular: the predicate for one partition; ``plural`` is the one for several.
    :param consequence: replaces the usual consequence of the kind.
    """
    first, count = partitions[0], len(partitions)
    if count == 1:
        subject, text = f"partition {first}", f"Partition {first} {singular}"
    else:
        subject, text = "cluster", f"{count:,} partitions {plural} ({partition_names(partitions)})"
    why = f"/v1/why/partitions/{quote(first.topic)}/{first.partition}"
    return Fault(kind, subject, f"{text}: {consequence or _CONSEQUENCES[kind]}.", why, partitions)


_CONSEQUENCES = {
    "no_leader": "writes and reads fail",
    "under_min_isr": "writes with acks=all are rejected",
    "under_replicated": "all records can be written and read, but fewer failures are tolerated",
}


def partition_names(partitions: Sequence[TopicPartition]) -> str:
    """Return the names of the first partitions, and an ellipsis if there are more."""
    names = ", ".join(str(key) for key in partitions[:EXAMPLES_MAX])
    return f"{names}, ..." if len(partitions) > EXAMPLES_MAX else names
