"""Client quotas (KIP-546): their names, the entities to which they apply, and their znodes."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from math import isfinite
from typing import NamedTuple

from kreplica.cluster.znodes import DEFAULT_ENTITY, config_path

PRODUCER_BYTE_RATE = "producer_byte_rate"
"""Bytes of Produce requests per second, per broker."""

CONSUMER_BYTE_RATE = "consumer_byte_rate"
"""Bytes of records in Fetch responses per second, per broker."""

REQUEST_PERCENTAGE = "request_percentage"
"""Percentage of the time of a broker's event loop."""

CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
"""Partitions created and deleted per second."""

CONNECTION_CREATION_RATE = "connection_creation_rate"
"""Connections from an IP address per second, per broker (KIP-612)."""

CLIENT_QUOTAS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Quotas of users and client IDs."""

IP_QUOTAS = (CONNECTION_CREATION_RATE,)
QUOTA_NAMES = (*CLIENT_QUOTAS, *IP_QUOTAS)
WHOLE_NUMBERS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})

USERS, CLIENTS, IPS = "users", "clients", "ips"


class QuotaEntity(NamedTuple):
    """A user, a client ID, a client ID of a user, or an IP address.

    ``DEFAULT_ENTITY`` represents all entities without a quota of their own.

    :ivar user: None for a quota of a client ID that applies to any user.
    :ivar client_id: None for a quota of a user that applies to all client IDs.
    :ivar ip: IP address or host name; then the other fields are None.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def path(self) -> str:
        """Path of the znode."""
        if self.ip is not None:
            return config_path(IPS, self.ip)
        if self.user is None:
            assert self.client_id is not None
            return config_path(CLIENTS, self.client_id)
        path = config_path(USERS, self.user)
        if self.client_id is None:
            return path
        return f"{path}/{config_path(CLIENTS, self.client_id).removeprefix('/config/')}"


def candidates(user: str, client_id: str) -> tuple[tuple[QuotaEntity, QuotaEntity], ...]:
    """Return the entities whose quota may apply to a client, most specific first.

    Each is paired with the entity whose requests are added up: all client IDs of a user share the user's quota.
    """
    pair, own, client = QuotaEntity(user, client_id), QuotaEntity(user, None), QuotaEntity(None, client_id)
    return (
        (pair, pair),
        (QuotaEntity(user, DEFAULT_ENTITY), pair),
        (own, own),
        (QuotaEntity(DEFAULT_ENTITY, client_id), pair),
        (QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY), pair),
        (QuotaEntity(DEFAULT_ENTITY, None), own),
        (client, client),
        (QuotaEntity(None, DEFAULT_ENTITY), client),
    )


def quota_fault(name: str, value: float) -> str | None:
    """Return the reason why a quota cannot have a value, as the end of a sentence; None if it can."""
    if name in IP_QUOTAS and not 0 <= value < 2**31:
        return "it must be a number from 0 to 2147483647"
    if name not in IP_QUOTAS and (not isfinite(value) or value <= 0):
        return "it must be greater than 0"
    if name in WHOLE_NUMBERS and not float(value).is_integer():
        return "it must be a whole number"
    return None


def plain_address(host: str) -> str | None:
    """Return an IP address in its canonical form, with an IPv4-mapped one as IPv4; None for a host name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
