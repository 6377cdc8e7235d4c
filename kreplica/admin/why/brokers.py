"""Explains the faults of a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kreplica.admin.health.broker_facts import BrokerFacts
from kreplica.admin.health.faults import KINDS, Fault, by_importance
from kreplica.admin.health.texts import time_text
from kreplica.admin.why.explanation import Advice, Explanation


def explain_broker(broker_id: int, faults: Sequence[Fault], facts: BrokerFacts) -> Explanation:
    """Explain the faults of a broker."""
    documents = by_importance(fault.document() for fault in faults)
    if documents:
        state = documents[0]["kind"]
        summary = " ".join(fault["text"] for fault in documents)
    else:
        state = "healthy"
        summary = (
            f"Broker {broker_id} has no fault: its event loop was not blocked in the last 5 minutes, its log "
            "directories can be written, and it reaches ZooKeeper and the leaders of its replicas."
        )
    advice = [Advice(KINDS[kind].advice) for kind in dict.fromkeys(fault["kind"] for fault in documents)]
    shown_facts = {
        "faults": documents,
        "stalls_since_start": facts.stalls_count,
        "stalls": [asdict(each) for each in facts.stalls],
        "certificates": [asdict(each) for each in facts.certificates],
    }
    return Explanation(f"broker {broker_id}", state, summary, you_can=advice, facts=shown_facts)


def explain_unreachable(broker_id: int, problem: str, left_ms: int | None, *, is_registered: bool) -> Explanation:
    """Explain that the faults are unknown because the broker does not respond.

    :param problem: the reason, a sentence.
    :param left_ms: when the controller saw it leave, in milliseconds since 1970; None if unknown.
    """
    if is_registered:
        state, summary = "broker_silent", f"Broker {broker_id} is registered but does not respond to admin requests."
    else:
        since = f" (it left at {time_text(left_ms)})" if left_ms is not None else ""
        state = "broker_gone"
        summary = f"Broker {broker_id} is not registered{since}: it stopped, died or lost its ZooKeeper session."
    advice = [Advice(KINDS[state].advice)]
    return Explanation(f"broker {broker_id}", state, summary, you_can=advice, problems=[problem])
