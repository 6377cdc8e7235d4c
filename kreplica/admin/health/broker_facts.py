"""Facts about one broker for its explanation: stalls of its event loop, and its certificates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kreplica.admin.health.texts import time_text
from kreplica.security.tls.expiry import CertificateExpiry


@dataclass(frozen=True, slots=True)
class StallFacts:
    """One stall of the event loop.

    :param at_ms: end of the stall, in milliseconds since 1970.
    :param cause: the request (API, version, size, client and address) or the task; ``unknown`` if none was recorded.
    """

    at_ms: int
    duration_ms: int
    cause: str


def stall_text(broker_id: int, stalls: Sequence[StallFacts]) -> str:
    """Return a sentence about recent stalls; at least one."""
    longest = max(stalls, key=lambda each: each.duration_ms)
    times = "once" if len(stalls) == 1 else f"{len(stalls)} times"
    return (
        f"The event loop of broker {broker_id} was blocked {times} in the last 5 minutes, for up to "
        f"{longest.duration_ms} ms (until {time_text(longest.at_ms)}), by: {longest.cause}."
    )


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """Facts of one broker.

    :param stalls: recent stalls, newest first.
    :param stalls_count: number of stalls since the start of the broker.
    :param certificates: the certificates of its listeners.
    """

    stalls: Sequence[StallFacts]
    stalls_count: int
    certificates: Sequence[CertificateExpiry]
