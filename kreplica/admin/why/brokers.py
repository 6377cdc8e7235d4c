"""Explains the problems of a broker: recent stalls of its event loop, and certificates that expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kreplica.admin.why.explanation import Advice, Explanation, time_text
from kreplica.security.tls.expiry import CertificateExpiry

RECENT_MS = 5 * 60 * 1000
"""Maximum age of a stall that makes the broker ``stalling``."""


@dataclass(frozen=True, slots=True)
class StallFacts:
    """One stall of the event loop.

    :param at_ms: end of the stall, in milliseconds since 1970.
    :param cause: the request (API, version, size, client and address) or the task; ``unknown`` if none was recorded.
    """

    at_ms: int
    duration_ms: int
    cause: str


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of a broker's listeners, and those of them that expire soon or have expired."""

    all: Sequence[CertificateExpiry]
    expiring: Sequence[CertificateExpiry]


def explain_broker(
    broker_id: int, stalls: Sequence[StallFacts], count: int, now_ms: int, certificates: Certificates
) -> Explanation:
    """Explain whether the event loop of a broker is blocked, and whether a certificate expires.

    :param stalls: recent stalls, newest first.
    :param count: number of stalls since the start of the broker.
    """
    recent = [each for each in stalls if now_ms - each.at_ms <= RECENT_MS]
    if recent:
        longest = max(recent, key=lambda each: each.duration_ms)
        state = "stalling"
        times = "once" if len(recent) == 1 else f"{len(recent)} times"
        summary = (
            f"The event loop of broker {broker_id} was blocked {times} in the last 5 minutes, for up to "
            f"{longest.duration_ms} ms (until {time_text(longest.at_ms)}), by: {longest.cause}."
        )
        advice = [Advice("Make the clients that caused the stalls send smaller requests, or disconnect them.")]
    else:
        state, advice = "healthy", []
        summary = f"The event loop of broker {broker_id} was not blocked in the last 5 minutes."
    if certificates.expiring:
        first = min(certificates.expiring, key=lambda each: each.days)
        if not recent:
            state = "certificate_expired" if first.days < 0 else "certificate_expiring"
        summary = " ".join([summary, *(each.text for each in certificates.expiring)])
        advice.append(Advice("Replace the files of these certificates: the broker reads them again within moments."))
    facts = {
        "stalls_since_start": count,
        "stalls": [asdict(each) for each in stalls],
        "certificates": [asdict(each) for each in certificates.all],
    }
    return Explanation(f"broker {broker_id}", state, summary, you_can=advice, facts=facts)


def explain_unreachable(broker_id: int, problem: str) -> Explanation:
    """Explain that the stalls are unknown because the broker does not respond.

    :param problem: the reason, a sentence.
    """
    return Explanation(
        f"broker {broker_id}",
        "unknown",
        f"Broker {broker_id} does not respond, so its stalls are unknown.",
        you_can=[Advice(f"Check whether broker {broker_id} hangs or is unreachable.")],
        problems=[problem],
    )
