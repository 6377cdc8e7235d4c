"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.groups.classic.requests import JoinAnswer, Protocols, SyncAnswer
from kreplica.groups.classic.session_timer import SessionTimer
from kreplica.groups.memory_limits import MEMBER_OVERHEAD_BYTES, texts_size
from kreplica.runtime import Reactor


class Member:
    """Owned by the ``Roster`` of its group.

    :param expired: told when its session has ended, which begins with ``heard``.
    :ivar knows_id: the client has received its member id, so it can join again with it.
    :ivar is_new: it has not seen a rebalance end yet, so it cannot send heartbeats.
    :ivar awaiting_join: the answer it waits for; set and taken by the roster, which counts them.
    :ivar awaiting_sync: the same of a SyncGroup.
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
        expired: Callable[[Member], None],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.session = SessionTimer(reactor, lambda: expired(self))
        self.assignment = b""
        self.is_new = False
        self.knows_id = True
        self.awaiting_join: JoinAnswer | None = None
        self.awaiting_sync: SyncAnswer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it has to say for a protocol; nothing for one that it does not speak."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    @property
    def size_bytes(self) -> int:
        """Memory that it is charged for."""
        return (
            size_of(self.protocols)
            + texts_size((self.member_id, self.instance_id, self.client_id, self.client_host))
            + len(self.assignment)
        )

    @property
    def is_kept_by_waiting(self) -> bool:
        """Whether it need not be heard of: it waits for an answer, and cannot send heartbeats meanwhile.

        Who is new is not kept so: it may be gone, and have come again under another id.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def release(self) -> None:
        """Drop what takes memory: a member and its session refer to each other until garbage is collected."""
        self.protocols = ()
        self.assignment = b""

    def heard(self) -> None:
        """It has a whole session from now."""
        self.session.extend(self.session_timeout_ms)


def size_of(protocols: Protocols) -> int:
    """Return the memory that a member with these protocols is charged for, without its names and assignment."""
    return MEMBER_OVERHEAD_BYTES + sum(texts_size(protocol) for protocol in protocols)
