"""Explains whether a client is slowed down by quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kreplica.admin.health.texts import brokers_text, time_text
from kreplica.admin.why.explanation import Advice, Explanation
from kreplica.cluster.quotas import CONNECTION_CREATION_RATE

RECENT_MS = 60 * 1000
"""Maximum time since the last throttling in the state ``throttled``."""

UNITS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of the event loop",
    "controller_mutation_rate": "partitions per second",
    CONNECTION_CREATION_RATE: "connections per second",
}


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A quota that applies to a client.

    :param user: user of the entity that has the quota; None if it is for any user.
    :param client_id: client ID of the entity; None if it is for any client ID.
    :param ip: address of the entity; None for a quota of users or client IDs.
    """

    quota: str
    limit: float
    user: str | None
    client_id: str | None
    ip: str | None

    @property
    def entity(self) -> dict[str, str]:
        parts = {"user": self.user, "client_id": self.client_id, "ip": self.ip}
        return {name: value for name, value in parts.items() if value is not None}

    @property
    def text(self) -> str:
        of = " and ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.entity.items())
        return f"{self.limit:,.15g} {UNITS[self.quota]} on each broker, the quota of {of}"


@dataclass(frozen=True, slots=True)
class ThrottledFacts:
    """A client that a broker has throttled.

    :param user: principal; None for a quota of IP addresses.
    :param count: throttled requests or connections.
    :param until_ms: end of the throttle time, in milliseconds since 1970; None if it is over.
    """

    broker_id: int
    quota: str
    user: str | None
    client_id: str | None
    address: str
    count: int
    throttled_ms: int
    last_at_ms: int
    until_ms: int | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def explain_client(
    principal: str,
    client_id: str | None,
    address: str | None,
    quotas: Sequence[QuotaUse],
    throttled: Sequence[ThrottledFacts],
    now_ms: int,
    problems: Sequence[str],
) -> Explanation:
    """Explain whether a client was throttled, and by which quota.

    :param client_id: None for all client IDs of the user.
    :param address: address of the client; None to ignore throttled connections.
    :param quotas: the quotas that apply to the client.
    :param throttled: throttled clients of all brokers.
    """
    rows = [row for row in throttled if _is_about(row, principal, client_id, address)]
    subject = principal if client_id is None else f"{principal} with the client ID {client_id}"
    facts = {"quotas": [asdict(each) for each in quotas], "throttled": [row.document() for row in rows]}
    if not rows:
        summary = f"{subject} was not throttled in the last hour."
        if not quotas:
            summary += " No quota applies."
        return Explanation(f"client {subject}", "not_throttled", summary, facts=facts, problems=problems)
    last_ms = max(row.last_at_ms for row in rows)
    is_recent = now_ms - last_ms <= RECENT_MS
    sentences, advice = [], []
    by_quota = {each.quota: each for each in quotas}
    for quota in dict.fromkeys(row.quota for row in rows):
        sentences.append(_sentence(quota, by_quota.get(quota), [row for row in rows if row.quota == quota]))
        applying = by_quota.get(quota)
        if applying is not None:
            body = {**applying.entity, "quotas": {quota: max(2 * applying.limit, 1)}}
            request = ("PATCH", "/v1/quotas", body)
            advice.append(Advice(f"Raise the quota {quota}, if the brokers have the capacity.", request))
    advice.append(Advice("Make the client send or fetch less, or distribute its partitions across more brokers."))
    is_or_was = "is" if is_recent else "was"
    summary = f"{subject} {is_or_was} throttled, most recently at {time_text(last_ms)}. {' '.join(sentences)}"
    state = "throttled" if is_recent else "was_throttled"
    return Explanation(f"client {subject}", state, summary, you_can=advice, facts=facts, problems=problems)


def _is_about(row: ThrottledFacts, principal: str, client_id: str | None, address: str | None) -> bool:
    if row.user is None:
        return row.address == address
    return row.user == principal and client_id in (None, row.client_id) and address in (None, row.address)


def _sentence(quota: str, applying: QuotaUse | None, rows: Sequence[ThrottledFacts]) -> str:
    count, seconds = sum(row.count for row in rows), sum(row.throttled_ms for row in rows) / 1000
    brokers = brokers_text(sorted({row.broker_id for row in rows}))
    brokers = brokers[0].upper() + brokers[1:]
    unit = "connection" if quota == CONNECTION_CREATION_RATE else "request"
    counted = f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"
    limit = "a quota that is no longer set" if applying is None else applying.text
    return f"{brokers} delayed {counted}, for {seconds:.1f} s in total, because of {quota} ({limit})."
