"""What can go wrong between a client and a broker, apart from the error codes that answers carry."""

from __future__ import annotations

from kreplica.errors import KreplicaError


class ClientError(KreplicaError):
    """A request that got no answer; ``retriable`` says whether it may do better later, or on another connection.

    Whether the broker acted on the request is not known, unless the class says so.
    """

    retriable = True


class ConnectionFailed(ClientError):
    """No connection came about: refused, timed out, or the host's name is not known.  Nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended, from this side or the other, before the answer came."""


class RequestTimedOut(ClientError):
    """The answer did not come in time; the connection is closed, since later answers could not be told apart."""


class TooManyRequests(ClientError):
    """As many requests as may be are under way on this connection already.  Nothing was sent."""


class MalformedAnswer(ClientError):
    """The broker's bytes are not an answer to this request; the connection is closed."""

    retriable = False


class UnsupportedVersion(ClientError):
    """Broker and client have no version of this API in common.  Nothing was sent."""

    retriable = False
