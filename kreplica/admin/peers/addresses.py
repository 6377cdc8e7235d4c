"""Checks the admin URL of another broker, so that a forged registration does not receive the tokens of callers."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from kreplica.admin.http.problems import Problem
from kreplica.model import BrokerRegistration

BAD_GATEWAY = 502


def peer_url(registration: BrokerRegistration, admin_url: str, *, with_token: bool) -> str:
    """Return the admin URL of a registration if requests may be sent to it.

    :param with_token: True if the caller's authorization is forwarded.
    :raise Problem: the URL names another host than the broker's listeners, or the token would leave the machine
        unencrypted.
    """
    broker = f"broker {registration.broker_id}"
    try:
        parts = urlsplit(admin_url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise _rejected(f"{broker} has registered a malformed admin URL, {admin_url[:200]!r}") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.query or parts.fragment:
        raise _rejected(f"{broker} has registered the admin URL {admin_url[:200]!r}, which is not http(s)://host:port")
    if not any(_is_same(host, endpoint.host) for endpoint in registration.endpoints):
        listeners = ", ".join(map(str, registration.endpoints)) or "none"
        raise _rejected(
            f"{broker} has registered an admin URL with host {host}, "
            f"but none of its listeners has this host ({listeners})",
            "Use the same host in kreplica.admin.listener and advertised.listeners of that broker; if it does, "
            f"check which client wrote /brokers/ids/{registration.broker_id} in ZooKeeper.",
        )
    if with_token and parts.scheme == "http" and not _is_loopback(host):
        raise _rejected(
            f"{broker} has registered the admin URL {admin_url}, without TLS: the token would be sent unencrypted",
            "Set kreplica.admin.tls.certificate.file and kreplica.admin.tls.key.file on that broker.",
        )
    return admin_url


def _rejected(detail: str, what_to_do: str | None = None) -> Problem:
    return Problem(
        BAD_GATEWAY,
        "untrusted admin listener",
        detail,
        what_to_do=what_to_do or "Check which client wrote its registration in ZooKeeper.",
    )


def _is_same(host: str, other: str) -> bool:
    return host.lower() == other.lower() or (_is_loopback(host) and _is_loopback(other))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
