"""Interfaces that Fetch uses: authorization, verification of followers, and the quota of consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred

from kreplica.server.protocol.request import Request


class FetchPermissions(Protocol):
    """Authorizes fetches (``authorization.Permissions``)."""

    def may_read(self, request: Request) -> Callable[[str], bool]:
        """Return a predicate for the names of topics that a consumer may read."""

    def may_replicate(self, request: Request) -> bool:
        """Return True if the client may read all topics as a follower."""


class Followers(Protocol):
    """Verifies the broker epochs of followers (``membership.follower_incarnations``).

    :ivar epochs: verified broker epochs by broker ID.
    """

    epochs: dict[int, int]

    def confirm(self, broker_id: int, broker_epoch: int) -> Deferred[bool]: ...


class Quota(Protocol):
    """Limits the bytes that consumers fetch (``quotas.fetch_quota``).

    :ivar is_set: True if a consumer may be limited.
    """

    is_set: bool

    def bytes_max(self, request: Request, bytes_max: int) -> int:
        """Return the maximum number of bytes in the response to a request."""

    def withhold_s(self, request: Request, size: int) -> float:
        """Record the bytes of a response; return the throttle time if the response must not contain records, else 0."""
