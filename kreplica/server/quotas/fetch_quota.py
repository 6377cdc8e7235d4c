"""Quota of the bytes that a consumer fetches (``consumer_byte_rate``)."""

from __future__ import annotations

from kreplica.cluster.quotas import CONSUMER_BYTE_RATE
from kreplica.server.protocol.request import Request
from kreplica.server.quotas.throttle_time import MeasuredRate
from kreplica.server.quotas.throttling import Throttling


class FetchQuota:
    """Decides whether the response to a consumer's fetch may contain records.

    A client that has exceeded its quota gets responses without records until its rate has recovered, as in Kafka.
    Unlike in Kafka, the first response that exceeds the quota still contains its records, and the client then pauses.
    Kafka withholds them, so that clients with large fetches get only half of their quota and can never fetch batches
    larger than the burst. A response is limited to the remaining burst, or to the quota of one window if that is
    larger.

    :ivar is_set: True if at least one client has this quota.
    """

    def __init__(self, throttling: Throttling) -> None:
        self._throttling = throttling
        self.is_set = False

    def update(self) -> None:
        """Apply changed quotas."""
        self.is_set = CONSUMER_BYTE_RATE in self._throttling.quotas.names

    def bytes_max(self, request: Request, bytes_max: int) -> int:
        """Return the maximum number of bytes in the response to a request.

        :param bytes_max: the maximum without a quota.
        """
        usage = self._usage(request)
        if usage is None:
            return bytes_max
        usage.record(0.0, self._throttling.quotas.seconds())  # drops old windows
        return min(bytes_max, max(int(max(usage.burst - usage.recorded, usage.limit * usage.window_s)), 1))

    def withhold_s(self, request: Request, size: int) -> float:
        """Record the bytes of a response; if it must not contain records, return the throttle time, else 0."""
        usage = self._usage(request)
        if usage is None:
            return 0.0
        throttling = self._throttling
        quotas = throttling.quotas
        now_s = quotas.seconds()
        throttle_s = usage.record(size, now_s)
        metrics = quotas.metrics[CONSUMER_BYTE_RATE]
        if throttle_s <= 0.0:
            metrics.used += size
            return 0.0
        before_s = usage.record(-size, now_s)
        if before_s > 0.0:
            throttling.throttle(request, CONSUMER_BYTE_RATE, before_s)
            return before_s
        usage.record(size, now_s)
        metrics.used += size
        throttling.throttle(request, CONSUMER_BYTE_RATE, throttle_s)
        return 0.0

    def _usage(self, request: Request) -> MeasuredRate | None:
        usage = self._throttling.quotas.find(CONSUMER_BYTE_RATE, request.connection.user, request.client_id)
        assert usage is None or isinstance(usage, MeasuredRate)
        return usage
