"""The quotas of a broker's clients, and their use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kreplica.cluster.quotas import CLIENT_QUOTAS, CONTROLLER_MUTATION_RATE, QuotaEntity, candidates
from kreplica.server.quotas.throttle_time import MeasuredRate, TokenBucket, evict_usages
from kreplica.server.quotas.throttled_clients import ThrottledClients

CLIENTS_MAX = 10_000
"""Maximum number of clients whose quota is cached, and of clients whose rate is measured per quota."""

Usage = MeasuredRate | TokenBucket


class QuotaMetrics:
    """Counters of one quota since the broker started.

    :ivar throttled: requests whose client had to pause.
    :ivar throttled_s: sum of their throttle times.
    :ivar used: units that clients with this quota used.
    """

    __slots__ = ("throttled", "throttled_s", "used")

    def __init__(self) -> None:
        self.throttled = 0
        self.throttled_s = 0.0
        self.used = 0.0


class ClientQuotas:
    """Finds the quota of a client, and measures its use; owned by the broker.

    Memory is bounded: if more than ``CLIENTS_MAX`` clients are measured for one quota, the oldest are forgotten.

    :param seconds: clock of the reactor.
    :param windows: number and length in seconds of the windows of rates.
    :param mutation_windows: number and length of the windows for ``controller_mutation_rate``.
    :ivar changed: called when a quota is first set for any entity, or is removed for the last one.
    :ivar metrics: counters by quota name.
    :ivar throttled: clients that were throttled recently, including those throttled by quotas of IP addresses.
    :ivar entries: all quotas, including those of IP addresses, which ``ConnectionLimits`` enforces.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        windows: tuple[int, float] = (11, 1.0),
        mutation_windows: tuple[int, float] = (11, 1.0),
    ) -> None:
        self.seconds = seconds
        self.changed: Callable[[], None] = lambda: None
        self.metrics = {name: QuotaMetrics() for name in CLIENT_QUOTAS}
        self.entries: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.throttled = ThrottledClients(seconds)
        self.request_window_s = windows[1]
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._names: frozenset[str] = frozenset()
        self._found: dict[tuple[str, str, str | None], Usage | None] = {}
        self._usages: dict[str, dict[QuotaEntity, Usage]] = {name: {} for name in CLIENT_QUOTAS}

    @property
    def names(self) -> frozenset[str]:
        """The quotas that are set for at least one entity."""
        return self._names

    def replace(self, entries: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all quotas; the measured use is kept."""
        self.entries = entries
        self._found.clear()
        names = frozenset(name for values in entries.values() for name in values if name in CLIENT_QUOTAS)
        if names != self._names:
            self._names = names
            self.changed()

    def find(self, name: str, user: str, client_id: str | None) -> Usage | None:
        """Return the use of the quota that applies to a client; None if it is not limited.

        :param user: principal, such as ``User:alice``.
        """
        key = (name, user, client_id)
        try:
            return self._found[key]
        except KeyError:
            pass
        if len(self._found) >= CLIENTS_MAX:
            self._found.clear()
        found = self._found[key] = self._find(name, user.partition(":")[2], client_id or "")
        return found

    def find_limit(self, name: str, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        """Return the entity whose quota applies to a client, and the quota; None if the client is not limited.

        :param user: principal, such as ``User:alice``.
        """
        for entity, _ in candidates(user.partition(":")[2], client_id):
            limit = self.entries.get(entity, {}).get(name)
            if limit is not None:
                return entity, limit
        return None

    def _find(self, name: str, user: str, client_id: str) -> Usage | None:
        for entity, client_entity in candidates(user, client_id):
            limit = self.entries.get(entity, {}).get(name)
            if limit is None:
                continue
            usages = self._usages[name]
            usage = usages.get(client_entity)
            if usage is None:
                if evict_usages(usages, CLIENTS_MAX, self.seconds()):
                    self._found.clear()
                kind = TokenBucket if name == CONTROLLER_MUTATION_RATE else MeasuredRate
                windows = self._mutation_windows if name == CONTROLLER_MUTATION_RATE else self._windows
                usage = usages[client_entity] = kind(limit, *windows)
            usage.limit = limit
            return usage
        return None
