"""Member of a classic group."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.groups.classic.requests import JoinCallback, Protocols, SyncCallback
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.memory_limits import MEMBER_OVERHEAD_BYTES, texts_size
from kreplica.runtime import Reactor


class Member:
    """Member of a classic group; owned by the ``Roster``.

    :param on_expired: called when the session expires; the session starts with ``restart_session``.
    :ivar knows_id: the client has received its member id and can rejoin with it.
    :ivar is_new: no rebalance has completed since the member joined, so it cannot send heartbeats yet.
    :ivar awaiting_join: callback of the pending JoinGroup request; set and cleared by the roster, which counts such
        requests.
    :ivar awaiting_sync: callback of the pending SyncGroup request.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "knows_id",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        reactor: Reactor,
        on_expired: Callable[[Member], None],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.session = SessionTimer(reactor, lambda: on_expired(self))
        self.assignment = b""
        self.is_new = False
        self.knows_id = True
        self.awaiting_join: JoinCallback | None = None
        self.awaiting_sync: SyncCallback | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if the member does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    @property
    def size_bytes(self) -> int:
        """Memory charged for this member, in bytes."""
        return (
            size_of(self.protocols)
            + texts_size((self.member_id, self.instance_id, self.client_id, self.client_host))
            + len(self.assignment)
        )

    @property
    def is_kept_alive(self) -> bool:
        """True if a pending response keeps the member alive, because it cannot send heartbeats in the meantime.

        New members are not kept alive, because the client may have disconnected and rejoined with another id.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def release(self) -> None:
        """Release large fields immediately; a reference cycle with the session timer delays garbage collection."""
        self.protocols = ()
        self.assignment = b""

    def restart_session(self) -> None:
        """Restart the session timeout."""
        self.session.extend(self.session_timeout_ms)


def size_of(protocols: Protocols) -> int:
    """Return the memory charged for a member's protocols, excluding its names and assignment."""
    return MEMBER_OVERHEAD_BYTES + sum(texts_size(protocol) for protocol in protocols)
