"""ZooKeeper's errors: one class per error code, shared by client and server.

The codes are those of the protocol.  Errors that occur only in a client (such as a lost connection) have the codes
that ZooKeeper's own clients assign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kreplica.errors import KreplicaError


class ZooKeeperError(KreplicaError):
    """Base class of ZooKeeper errors.

    :param path: the znode's path as the caller passed it (without the chroot); None if no znode is involved.
    :param message: details; if empty, the class's ``meaning`` is shown.
    """

    code: ClassVar[int] = -1
    meaning: ClassVar[str] = "unspecified server error"

    def __init__(self, path: str | None = None, message: str = "") -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.message or self.meaning}"


class ServerError(ZooKeeperError):
    """Server error without a specific code."""


class RuntimeInconsistency(ZooKeeperError):
    """The operation was not attempted because an earlier operation of the same multi failed."""

    code = -2
    meaning = "not attempted: another operation of the multi failed"


class DataInconsistency(ZooKeeperError):
    """The server found its own data inconsistent."""

    code = -3
    meaning = "the server found its data inconsistent"


class ConnectionLoss(ZooKeeperError):
    """The connection was lost before the response arrived; the request may or may not have taken effect.

    A request that was not sent fails with ``NotSent`` instead and had no effect.
    """

    code = -4
    meaning = "the connection was lost before the response; the outcome is unknown"


class NotSent(ConnectionLoss):
    """The request was not sent: it had no effect and can be retried."""

    meaning = "not connected, and the request was not sent"


class PipelineFull(NotSent):
    """Too many requests are unanswered; the caller must wait for responses before sending more."""

    meaning = "too many requests are unanswered; the request was not sent"


class ClientClosed(NotSent):
    """The client was closed before the request was sent."""

    meaning = "the client is closed"


class MarshallingError(ZooKeeperError):
    """The server could not decode the request, or the client could not decode the response."""

    code = -5
    meaning = "malformed request or response"


class Unimplemented(ZooKeeperError):
    """The server does not support this operation."""

    code = -6
    meaning = "the server does not know this operation"


class OperationTimeout(ZooKeeperError):
    """The operation did not complete within its timeout."""

    code = -7
    meaning = "the operation timed out"


class BadArguments(ZooKeeperError):
    """A path or an argument is malformed, or the request is too large."""

    code = -8
    meaning = "malformed path or argument"


class RequestTooLarge(BadArguments):
    """The request exceeds ``jute.maxbuffer``; it is not sent because the server would close the connection."""

    def __init__(self, size: int, size_max: int, path: str | None = None) -> None:
        super().__init__(path, f"the request has {size:,} bytes; jute.maxbuffer allows {size_max:,}")


class NewConfigNoQuorum(ZooKeeperError):
    """A reconfiguration found no quorum of the new ensemble connected."""

    code = -13
    meaning = "no quorum of the new configuration is connected"


class ReconfigInProgress(ZooKeeperError):
    """Another reconfiguration of the ensemble is in progress."""

    code = -14
    meaning = "another reconfiguration is in progress"


class ApiError(ZooKeeperError):
    """Base class of application errors; the other codes are system failures."""

    code = -100
    meaning = "the request cannot be served"


class NoNode(ApiError):
    """The znode (or, for a create, its parent) does not exist."""

    code = -101
    meaning = "no such znode"


class NoAuth(ApiError):
    """The znode's ACL does not grant this operation to any identity of the session."""

    code = -102
    meaning = "not allowed by the znode's ACL"


class BadVersion(ApiError):
    """The znode's version differs from the expected one."""

    code = -103
    meaning = "the znode's version differs from the expected one"


class NoChildrenForEphemerals(ApiError):
    """An ephemeral znode cannot have children."""

    code = -108
    meaning = "an ephemeral znode cannot have children"


class NodeExists(ApiError):
    """The znode to create already exists."""

    code = -110
    meaning = "the znode already exists"


class NotEmpty(ApiError):
    """The znode to delete has children."""

    code = -111
    meaning = "the znode has children"


class SessionExpired(ApiError):
    """The session has expired with its ephemeral znodes and watches; the client does not replace it automatically."""

    code = -112
    meaning = "the session has expired"


class InvalidCallback(ApiError):
    """Invalid callback; defined only because the protocol has this code."""

    code = -113
    meaning = "invalid callback"


class InvalidAcl(ApiError):
    """The ACL is empty or names an unknown scheme or identity."""

    code = -114
    meaning = "invalid ACL"


class AuthFailed(ApiError):
    """The server rejected the credentials."""

    code = -115
    meaning = "the server rejected the credentials"


class SessionMoved(ApiError):
    """The session has moved to another server; this connection can no longer use it."""

    code = -118
    meaning = "the session has moved to another server"


class NotReadOnly(ApiError):
    """A write was sent to a read-only server."""

    code = -119
    meaning = "the server is read-only"


class EphemeralOnLocalSession(ApiError):
    """A local session cannot own ephemeral znodes."""

    code = -120
    meaning = "a local session cannot own ephemeral znodes"


class NoWatcher(ApiError):
    """The watch to remove does not exist."""

    code = -121
    meaning = "the watch does not exist"


class RequestTimeout(ApiError):
    """The server did not finish the request in time."""

    code = -122
    meaning = "the server did not finish in time"


class ReconfigDisabled(ApiError):
    """Reconfiguration is disabled on the server."""

    code = -123
    meaning = "reconfiguration is disabled"


class SessionClosedRequireSaslAuth(ApiError):
    """The server closes sessions that have not authenticated with SASL."""

    code = -124
    meaning = "the server requires SASL authentication"


class QuotaExceeded(ApiError):
    """A quota of the tree would be exceeded."""

    code = -125
    meaning = "a quota would be exceeded"


class Throttled(ApiError):
    """The server is overloaded and dropped the request."""

    code = -127
    meaning = "the server is overloaded"


class UnknownCode(ZooKeeperError):
    """The server returned an error code that this client does not know; the instance's ``code`` contains it."""

    def __init__(self, unknown: int, path: str | None = None) -> None:
        super().__init__(path, f"the server returned the unknown error code {unknown}")
        self.code = unknown  # type: ignore[misc]  # the one class whose code belongs to the instance


class MultiFailed(ZooKeeperError):
    """One operation of a multi failed, so none was applied.

    :param index: position of the first operation that failed.
    :param error: error of that operation; its ``path`` is the znode's.
    :param results: one error per operation: None before ``index`` (rolled back), ``RuntimeInconsistency`` after it.
    """

    def __init__(self, index: int, error: ZooKeeperError, results: Sequence[ZooKeeperError | None]) -> None:
        super().__init__(error.path, f"operation {index} of {len(results)} failed: {error.message or error.meaning}")
        self.index = index
        self.error = error
        self.results = results
        self.code = error.code  # type: ignore[misc]  # the failed operation's own


def _children(root: type[ZooKeeperError]) -> list[type[ZooKeeperError]]:
    return [each for each in root.__subclasses__() if each not in (UnknownCode, MultiFailed)]


# Subclasses that only a client raises share their parent's code and are not listed.
ERRORS_BY_CODE: dict[int, type[ZooKeeperError]] = {
    each.code: each for each in (*_children(ZooKeeperError), *_children(ApiError))
}


def error_of(code: int, path: str | None = None) -> ZooKeeperError:
    """Return the exception for an error code of a response.

    :param code: must not be 0 (success).
    """
    kind = ERRORS_BY_CODE.get(code)
    return kind(path) if kind is not None else UnknownCode(code, path)
