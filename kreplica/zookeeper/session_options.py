"""Options of a client's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kreplica.zookeeper.digest_md5 import SaslCredentials
from kreplica.zookeeper.ensemble import TlsContextFactory
from kreplica.zookeeper.records import FRAME_SIZE_MAX

# ``jute.maxbuffer`` limits requests, not responses: a multi-read of many znodes is small but has a large response.
RESPONSE_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session.

    :param timeout_ms: requested session timeout; the server may grant a different one.
    :param auth: (scheme, credentials) pairs, sent on each new connection.
    :param sasl: SASL credentials, used on each new connection before other requests are sent.
    :param resume: (ID, password) of the session to resume; None creates a new one.
    :param frame_size_max: maximum request size in bytes (``jute.maxbuffer`` of the server).
    :param response_size_max: maximum response size in bytes.
    :param requests_max: maximum number of unanswered requests, including queued ones.
    :param request_bytes_max: maximum total size of unanswered requests in bytes; further requests fail.
    :param waiting_ms_max: maximum time for which a request waits for a connection; None means the session timeout.
    """

    timeout_ms: int = 18_000
    auth: Sequence[tuple[str, bytes]] = ()
    sasl: SaslCredentials | None = None
    tls_context_factory: TlsContextFactory | None = None
    resume: tuple[int, bytes] | None = None
    frame_size_max: int = FRAME_SIZE_MAX
    response_size_max: int = RESPONSE_SIZE_MAX
    requests_max: int = 100_000
    request_bytes_max: int = 64 * 1024 * 1024
    waiting_ms_max: int | None = None
