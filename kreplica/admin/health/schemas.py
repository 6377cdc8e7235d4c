"""JSON schemas of faults and of the health report."""

from __future__ import annotations

from kreplica.admin.health.faults import BAD, EXAMPLES_MAX, KINDS, WARNING
from kreplica.admin.http.schemas import COUNT, STRING, listing, nullable, one_of, record

GOOD = "good"

FAULT = record(
    {
        "kind": {
            **one_of(*KINDS),
            "description": " ".join(f"`{name}`: {kind.description}" for name, kind in KINDS.items()),
        },
        "severity": one_of(BAD, WARNING),
        "subject": {**STRING, "description": "`broker 2`, `partition orders-0`, or `cluster`."},
        "text": {**STRING, "description": "A sentence that names the object and the cause."},
        "count": {**COUNT, "description": "Number of affected partitions; 0 if no partitions are affected."},
        "examples": {**listing(STRING), "description": f"At most {EXAMPLES_MAX} of the affected partitions."},
        "why": {**nullable(STRING), "description": "Path of the explanation in this API; null if there is none."},
    },
    title="Fault",
)

LOCAL = record({"faults": listing(FAULT)}, title="BrokerFaults")
FIGURES = record(
    {
        "offline_partitions": {**COUNT, "description": "Partitions without a leader."},
        "under_min_isr_partitions": {
            **COUNT,
            "description": "Partitions with a leader that rejects acks=all, because too few replicas are in sync.",
        },
        "under_replicated_partitions": {
            **COUNT,
            "description": "Partitions that have a leader and an out-of-sync replica.",
        },
        "failed_log_dirs": {**COUNT, "description": "Log directories of live brokers that failed."},
        "full_log_dirs": {**COUNT, "description": "Log directories of live brokers whose disk is full."},
        "damaged_logs": {**COUNT, "description": "Replicas on live brokers with corrupt or unreadable batches."},
        "brokers_gone": {**COUNT, "description": "Brokers that hold replicas but are not registered."},
        "brokers_silent": {**COUNT, "description": "Registered brokers that do not respond to admin requests."},
    },
    title="HealthFigures",
)

HEALTH = record(
    {
        "state": {**one_of(GOOD, WARNING, BAD), "description": "The worst severity of the faults."},
        "summary": {**STRING, "description": "One sentence: the most important fault, or that all is well."},
        "figures": FIGURES,
        "faults": {**listing(FAULT), "description": "Most important first."},
        "problems": {**listing(STRING), "description": "A sentence for each broker whose faults are unknown."},
    },
    title="Health",
)
