"""Transactions of an ensemble's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kreplica.zookeeper.embedded.access import Identity
from kreplica.zookeeper.embedded.sessions import SessionRow


@dataclass(frozen=True, slots=True)
class Change:
    """Write of a client; every server executes the same request.

    :param time_ms: the leader's wall clock, for ``ctime`` and ``mtime``.
    :param session_id: owner of ephemeral znodes that the write creates.
    :param body: the request without its header.
    """

    zxid: int
    time_ms: int
    session_id: int
    identities: tuple[Identity, ...]
    opcode: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SessionOpened:
    zxid: int
    row: SessionRow


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """End of a session and deletion of its ephemeral znodes."""

    zxid: int
    session_id: int


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """First transaction of a leader; its zxid is greater than those of all earlier leaders."""

    zxid: int


Transaction: TypeAlias = Change | SessionOpened | SessionClosed | EpochStarted


def first_zxid(epoch: int) -> int:
    """Return the zxid of a leader's first transaction; the upper 32 bits are the epoch."""
    return epoch << 32
