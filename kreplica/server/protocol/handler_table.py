"""Table of the APIs that a broker serves, with their handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kreplica.server.produce.batching import RunHandler
from kreplica.server.protocol.request import Handler
from kreplica.wire.messages import Api


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """Handler of an API and the versions that are served and advertised.

    :param versions_min: lowest version.
    :param versions_max: highest version.
    :param handle_run: handles runs of similar Produce requests; None if requests must be handled one by one.
    :param is_advertised: returns True if ApiVersions currently lists the API; None if it always does.
    """

    api: Api
    versions_min: int
    versions_max: int
    handle: Handler
    handle_run: RunHandler | None = None
    is_advertised: Callable[[], bool] | None = None

    @classmethod
    def of(cls, api: Api, handle: Handler) -> HandlerEntry:
        """Return an entry that serves all versions for which the API has a schema."""
        return cls(api, api.versions[0], api.versions[1], handle)


HandlerTable = dict[int, HandlerEntry]
"""Handler entries by API key."""
