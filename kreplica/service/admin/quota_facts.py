"""The quotas that this broker enforces, for the admin API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kreplica.admin.why.clients import QuotaUse, ThrottledFacts
from kreplica.cluster.quotas import CLIENT_QUOTAS, CONNECTION_CREATION_RATE, QuotaEntity, plain_address
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.server.quotas.client_quotas import ClientQuotas


class LocalQuotaFacts:
    """Implements ``admin.resources.quotas.LocalQuotas``.

    :param now_ms: the wall clock.
    """

    def __init__(self, broker_id: int, quotas: ClientQuotas, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._quotas = quotas
        self._now_ms = now_ms

    @property
    def entries(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._quotas.entries

    def throttled(self) -> Sequence[ThrottledFacts]:
        now_s, now_ms = self._quotas.seconds(), self._now_ms()

        def wall_ms(at_s: float) -> int:
            return now_ms + round((at_s - now_s) * 1000)

        return [
            ThrottledFacts(
                self._broker_id,
                client.key.quota,
                client.key.user or None,
                client.key.client_id if client.key.user else None,
                client.key.address,
                client.count,
                round(client.total_s * 1000),
                wall_ms(client.last_s),
                wall_ms(client.until_s) if client.until_s > now_s else None,
            )
            for client in self._quotas.throttled
        ]

    def quotas_of(self, principal: str, client_id: str, address: str | None) -> Sequence[QuotaUse]:
        found = []
        for name in CLIENT_QUOTAS:
            applying = self._quotas.find_limit(name, principal, client_id)
            if applying is not None:
                found.append(QuotaUse(name, applying[1], *applying[0]))
        if address is not None:
            plain = plain_address(address)
            own = [entity for entity in self.entries if entity.ip is not None and plain_address(entity.ip) == plain]
            for entity in (*(own if plain else ()), QuotaEntity(ip=address), QuotaEntity(ip=DEFAULT_ENTITY)):
                limit = self.entries.get(entity, {}).get(CONNECTION_CREATION_RATE)
                if limit is not None:
                    found.append(QuotaUse(CONNECTION_CREATION_RATE, limit, *entity))
                    break
        return found
