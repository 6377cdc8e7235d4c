"""Counters of a server."""

from __future__ import annotations

from kreplica.runtime.distribution import Distribution
from kreplica.wire.messages import FETCH, PRODUCE

_TIMED = (PRODUCE.key, FETCH.key)


class ApiMetrics:
    """Counters of one API since the server started.

    :ivar requests: requests dispatched.
    :ivar errors: requests that closed their connection: malformed, refused, or failed in the handler.
    :ivar bytes_in: bytes of request frames, without length prefixes.
    :ivar bytes_out: bytes of responses, with length prefixes.
    :ivar response_time_s: sum of the times from dispatch to response, including waits.
    :ivar waits: requests that waited for replicas (Produce) or new records (Fetch).
    :ivar wait_time_s: sum of the times of these requests; it is part of ``response_time_s``.
    :ivar times: distribution of these times in seconds, for Produce and Fetch; None for other APIs.
    """

    __slots__ = ("bytes_in", "bytes_out", "errors", "requests", "response_time_s", "times", "wait_time_s", "waits")

    def __init__(self, times: Distribution | None = None) -> None:
        self.requests = 0
        self.errors = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.response_time_s = 0.0
        self.waits = 0
        self.wait_time_s = 0.0
        self.times = times

    def count_response(self, seconds: float, requests: int = 1) -> None:
        """Record responses that were sent ``seconds`` after their requests were dispatched."""
        self.response_time_s += seconds * requests
        if self.times is not None:
            self.times.note(seconds, requests)


class ServerMetrics:
    """All counters of one broker's server.

    :ivar apis: counters by API key; a key appears with its first request.
    :ivar connections: open connections.
    :ivar connections_accepted: accepted connections, including refused ones.
    :ivar connections_refused: connections closed at once because of a connection limit.
    :ivar connections_idle_closed: connections closed by the idle timeout.
    :ivar partial_evictions: connections closed because their frame arrived slowly while memory was scarce.
    :ivar unread_evictions: connections closed because their client did not read responses while memory was scarce.
    :ivar pauses: number of times that a connection reached a bound and was not read for a while.
    :ivar cold_reads: number of times that a response waited for a page that was not in the page cache.
    """

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_idle_closed = 0
        self.partial_evictions = 0
        self.unread_evictions = 0
        self.pauses = 0
        self.cold_reads = 0

    def api(self, key: int) -> ApiMetrics:
        """Return the counters of one API."""
        metrics = self.apis.get(key)
        if metrics is None:
            times = Distribution() if key in _TIMED else None
            metrics = self.apis[key] = ApiMetrics(times)
        return metrics
