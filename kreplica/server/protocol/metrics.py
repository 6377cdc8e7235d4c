"""What a server counts: plain numbers, read by whoever shows them."""

from __future__ import annotations

from kreplica.runtime.distribution import Distribution
from kreplica.wire.messages import FETCH, PRODUCE

_TIMED = (PRODUCE.key, FETCH.key)


class ApiMetrics:
    """Counters of one API since the server was made.

    :ivar requests: those dispatched.
    :ivar errors: those that ended with their connection being closed: malformed, refused, or failed in the handler.
    :ivar bytes_in: frames of requests, without their length.
    :ivar bytes_out: answers, with their length.
    :ivar answered_time_s: from dispatch to answer, waiting included; all answers together.
    :ivar times: the same, spread, in seconds; of the APIs that carry records, None of the others.
    """

    __slots__ = ("answered_time_s", "bytes_in", "bytes_out", "errors", "requests", "times")

    def __init__(self, times: Distribution | None = None) -> None:
        self.requests = 0
        self.errors = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.answered_time_s = 0.0
        self.times = times

    def answered(self, seconds: float, requests: int = 1) -> None:
        """A request was answered so long after it was dispatched, or several were."""
        self.answered_time_s += seconds * requests
        if self.times is not None:
            self.times.note(seconds, requests)


class ServerMetrics:
    """All counters of one broker's server.

    :ivar apis: by API key; a key appears with its first request.
    :ivar connections: open now.
    :ivar connections_accepted: since the server was made, those refused included.
    :ivar connections_refused: closed at once, for a bound on connections.
    :ivar connections_idle_closed: closed because no byte had moved for too long.
    :ivar partial_evictions: closed because their incomplete frame was slow while memory was scarce.
    :ivar pauses: times that a connection was not read for a while because it had reached a bound.
    :ivar cold_reads: times that an answer had to wait for the disk.
    """

    def __init__(self) -> None:
        self.apis: dict[int, ApiMetrics] = {}
        self.connections = 0
        self.connections_accepted = 0
        self.connections_refused = 0
        self.connections_idle_closed = 0
        self.partial_evictions = 0
        self.pauses = 0
        self.cold_reads = 0

    def api(self, key: int) -> ApiMetrics:
        """The counters of one API."""
        metrics = self.apis.get(key)
        if metrics is None:
            times = Distribution() if key in _TIMED else None
            metrics = self.apis[key] = ApiMetrics(times)
        return metrics
