"""IP addresses of the host names in connection limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.cluster.quotas import QuotaEntity, plain_address
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Reactor

log = Logger()

T = TypeVar("T")


class HostAddresses:
    """IP addresses of the hosts in one set of limits; names are looked up when the limits change."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._running: Deferred[None] | None = None

    async def resolve(self, host: str) -> str | None:
        """Return the address of a host; None if it has none."""
        address = plain_address(host)
        if address is None:
            try:
                address = plain_address(await self._reactor.resolve(host))
            except OSError:
                return None
        return address

    async def check(self, entity: QuotaEntity) -> None:
        """Check that an entity's host is an IP address or can be resolved.

        :raise KafkaError: INVALID_REQUEST.
        """
        if entity.ip in (None, DEFAULT_ENTITY):
            return
        if await self.resolve(entity.ip) is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{entity.ip} is not a valid IP or resolvable host.")

    def resolve_all(self, by_host: Mapping[str, T], on_resolved: Callable[[dict[str, T]], None]) -> None:
        """Replace the hosts in the keys of a mapping with their addresses; supersedes the previous call.

        :param on_resolved: called at once with the keys that are IP addresses, and again when the names are resolved.
        """
        self.stop()
        addresses = {plain_address(host): value for host, value in by_host.items()}
        known = {address: value for address, value in addresses.items() if address is not None}
        names = {host: value for host, value in by_host.items() if plain_address(host) is None}
        on_resolved(dict(known))
        if names:
            running = Deferred.fromCoroutine(self._look_up(names, known, on_resolved))
            running.addErrback(lambda failure: failure.trap(CancelledError) and None)
            running.addErrback(lambda failure: log.failure("looking up hosts failed", failure))
            self._running = running

    async def _look_up(
        self, names: Mapping[str, T], known: dict[str, T], on_resolved: Callable[[dict[str, T]], None]
    ) -> None:
        for name, value in names.items():
            address = await self.resolve(name)
            if address is None:
                log.error("{name} in a connection limit is not a known host; the limit is ignored", name=name)
            else:
                known.setdefault(address, value)
        on_resolved(known)

    def stop(self) -> None:
        """Cancel the lookups in progress."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
