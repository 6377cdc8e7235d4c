"""Client quotas: their names, the entities that they apply to, and the znodes with them (KIP-546)."""

from __future__ import annotations

from typing import NamedTuple

from kreplica.cluster.znodes import DEFAULT_ENTITY, config_path

PRODUCER_BYTE_RATE = "producer_byte_rate"
"""Bytes of Produce requests per second and broker."""

CONSUMER_BYTE_RATE = "consumer_byte_rate"
"""Bytes of records in Fetch responses per second and broker."""

REQUEST_PERCENTAGE = "request_percentage"
"""Percentage of a broker's event loop."""

CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
"""Partitions created and deleted per second."""

QUOTA_NAMES = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
WHOLE_NUMBERS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE})

USERS, CLIENTS = "users", "clients"


class QuotaEntity(NamedTuple):
    """A user, a client ID, or a client ID of a user; ``DEFAULT_ENTITY`` stands for all that have no own quota.

    :ivar user: None for a quota of a client ID, independent of its user.
    :ivar client_id: None for a quota of a user, with all client IDs.
    """

    user: str | None
    client_id: str | None

    @property
    def path(self) -> str:
        """Path of the znode."""
        if self.user is None:
            assert self.client_id is not None
            return config_path(CLIENTS, self.client_id)
        path = config_path(USERS, self.user)
        if self.client_id is None:
            return path
        return f"{path}/{config_path(CLIENTS, self.client_id).removeprefix('/config/')}"


def candidates(user: str, client_id: str) -> tuple[tuple[QuotaEntity, QuotaEntity], ...]:
    """Return the entities whose quota may apply to a client, the most specific first.

    Each is paired with the entity whose requests count together: a quota of a user is shared by all client IDs.
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
