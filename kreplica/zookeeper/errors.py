"""ZooKeeper's errors: one class per code, the same classes on the client's and on the server's side.

The numbers are those of the protocol.  Errors that only a client can meet (a lost connection) have codes too, because
ZooKeeper's own clients give them some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kreplica.errors import KreplicaError


class ZooKeeperError(KreplicaError):
    """A ZooKeeper request that failed; the subclass says how.

    :param path: the znode concerned, as the caller named it (without the chroot); None where there is none.
    :param message: what happened, where the class alone does not say it.
    """

    code: ClassVar[int] = -1
    meaning: ClassVar[str] = "the server met an error it does not describe"

    def __init__(self, path: str | None = None, message: str = "") -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.message or self.meaning}"


class ServerError(ZooKeeperError):
    """The server failed in a way that has no code of its own."""


class RuntimeInconsistency(ZooKeeperError):
    """This operation of a multi was not tried, because an earlier one of the same multi failed."""

    code = -2
    meaning = "not tried: another operation of the multi failed"


class DataInconsistency(ZooKeeperError):
    """The server found its own data inconsistent."""

    code = -3
    meaning = "the server found its data inconsistent"


class ConnectionLoss(ZooKeeperError):
    """The connection ended before the answer came: whether the request took effect is unknown.

    A request that was still waiting to be sent fails with ``NotSent`` instead, which certainly had no effect.
    """

    code = -4
    meaning = "the connection was lost before the answer; the outcome is unknown"


class NotSent(ConnectionLoss):
    """The request never left this process: it had no effect and can be made again."""

    meaning = "not connected, and the request was not sent"


class PipelineFull(NotSent):
    """Too many requests are without an answer already; wait for some before sending more."""

    meaning = "too many requests are unanswered; the request was not sent"


class ClientClosed(NotSent):
    """The client was closed by its owner before this request was made or sent."""

    meaning = "the client is closed"


class MarshallingError(ZooKeeperError):
    """The server could not read the request, or the client the answer."""

    code = -5
    meaning = "the bytes are not what the protocol says"


class Unimplemented(ZooKeeperError):
    """The server does not know this operation."""

    code = -6
    meaning = "the server does not know this operation"


class OperationTimeout(ZooKeeperError):
    """The operation was not done within the time allowed."""

    code = -7
    meaning = "not done within the time allowed"


class BadArguments(ZooKeeperError):
    """A malformed path or argument, or a request that is too large."""

    code = -8
    meaning = "malformed path or argument"


class RequestTooLarge(BadArguments):
    """A request beyond ``jute.maxbuffer``: the server would drop the connection, so it is not sent."""

    def __init__(self, size: int, size_max: int, path: str | None = None) -> None:
        super().__init__(path, f"the request takes {size:,} bytes where jute.maxbuffer allows {size_max:,}")


class NewConfigNoQuorum(ZooKeeperError):
    """A reconfiguration found no quorum of the new ensemble connected."""

    code = -13
    meaning = "no quorum of the new configuration is connected"


class ReconfigInProgress(ZooKeeperError):
    """Another reconfiguration of the ensemble has not ended."""

    code = -14
    meaning = "another reconfiguration is in progress"


class ApiError(ZooKeeperError):
    """The codes from here down are answers of the application level, not failures of the system."""

    code = -100
    meaning = "the request cannot be served"


class NoNode(ApiError):
    """The znode (or, for a create, its parent) does not exist."""

    code = -101
    meaning = "no such znode"


class NoAuth(ApiError):
    """The znode's ACL does not allow this to any identity of the session."""

    code = -102
    meaning = "not allowed by the znode's ACL"


class BadVersion(ApiError):
    """The znode is at another version than the request asks for."""

    code = -103
    meaning = "the znode is at another version"


class NoChildrenForEphemerals(ApiError):
    """An ephemeral znode cannot have children."""

    code = -108
    meaning = "ephemeral znodes have no children"


class NodeExists(ApiError):
    """The znode to be created exists."""

    code = -110
    meaning = "the znode exists"


class NotEmpty(ApiError):
    """The znode to be deleted has children."""

    code = -111
    meaning = "the znode has children"


class SessionExpired(ApiError):
    """The session is over: its ephemeral znodes and watches are gone, and this client makes no other by itself."""

    code = -112
    meaning = "the session has expired"


class InvalidCallback(ApiError):
    """A callback was not valid (kept for the code's sake)."""

    code = -113
    meaning = "invalid callback"


class InvalidAcl(ApiError):
    """The ACL is empty or names an unknown scheme or identity."""

    code = -114
    meaning = "invalid ACL"


class AuthFailed(ApiError):
    """The server refused the credentials."""

    code = -115
    meaning = "the server refused the credentials"


class SessionMoved(ApiError):
    """The session has moved to another server; this connection can no longer use it."""

    code = -118
    meaning = "the session has moved to another server"


class NotReadOnly(ApiError):
    """A write was sent to a server that is read-only for now."""

    code = -119
    meaning = "the server is read-only"


class EphemeralOnLocalSession(ApiError):
    """A local session cannot own ephemeral znodes."""

    code = -120
    meaning = "a local session cannot own ephemeral znodes"


class NoWatcher(ApiError):
    """There is no such watch to remove."""

    code = -121
    meaning = "no such watch"


class RequestTimeout(ApiError):
    """The server did not finish the request in time."""

    code = -122
    meaning = "the server did not finish in time"


class ReconfigDisabled(ApiError):
    """Reconfiguration is switched off at the server."""

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
    """The server is overloaded and dropped the request unserved."""

    code = -127
    meaning = "the server is overloaded"


class UnknownCode(ZooKeeperError):
    """The server answered with a code that this client does not know; ``code`` of the instance is that number."""

    def __init__(self, unknown: int, path: str | None = None) -> None:
        super().__init__(path, f"the server answered with the unknown error code {unknown}")
        self.code = unknown  # type: ignore[misc]  # the one class whose code belongs to the instance


class MultiFailed(ZooKeeperError):
    """A multi of which nothing was done, because one of its operations failed.

    :param index: the position of the first operation that failed.
    :param error: why that one failed; its ``path`` names the znode.
    :param results: one error per operation; ``RuntimeInconsistency`` for those after ``index``, None for those
        before it, which would have succeeded and were undone.
    """

    def __init__(self, index: int, error: ZooKeeperError, results: Sequence[ZooKeeperError | None]) -> None:
        super().__init__(error.path, f"operation {index} of {len(results)} failed: {error.message or error.meaning}")
        self.index = index
        self.error = error
        self.results = results
        self.code = error.code  # type: ignore[misc]  # the failed operation's own


def _children(root: type[ZooKeeperError]) -> list[type[ZooKeeperError]]:
    return [each for each in root.__subclasses__() if each not in (UnknownCode, MultiFailed)]


# The classes with a code of their own: finer ones, which only a client raises, share their parent's.
ERRORS_BY_CODE: dict[int, type[ZooKeeperError]] = {
    each.code: each for each in (*_children(ZooKeeperError), *_children(ApiError))
}


def error_of(code: int, path: str | None = None) -> ZooKeeperError:
    """The exception for a code that a server answered.

    :param code: not 0, which is success.
    """
    kind = ERRORS_BY_CODE.get(code)
    return kind(path) if kind is not None else UnknownCode(code, path)
