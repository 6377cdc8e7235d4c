"""Settings for fetching from leaders."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.wire.framing import REQUEST_SIZE_MAX

SYSTEM_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """Kafka's replica fetcher settings, read when the broker starts.

    :param wait_ms_max: ``replica.fetch.wait.max.ms``.
    :param bytes_min: ``replica.fetch.min.bytes``.
    :param partition_bytes_max: ``replica.fetch.max.bytes``.
    :param response_bytes_max: ``replica.fetch.response.max.bytes``.
    :param frame_bytes_max: maximum size of a response; a single batch may exceed the requested size.
    :param backoff_s_max: ``replica.fetch.backoff.ms`` in seconds: upper limit of the exponential backoff.
    :param timeout_s: ``replica.socket.timeout.ms`` in seconds: timeout for a response and for connecting.
    :param receive_buffer_bytes: ``replica.socket.receive.buffer.bytes``; -1 for the operating system's default.
    :param endpoint: creates the endpoints of connections to leaders.
    """

    wait_ms_max: int = 500
    bytes_min: int = 1
    partition_bytes_max: int = 1 << 20
    response_bytes_max: int = 10 << 20
    frame_bytes_max: int = REQUEST_SIZE_MAX
    backoff_s_max: float = 1.0
    timeout_s: float = 30.0
    receive_buffer_bytes: int = SYSTEM_DEFAULT
    endpoint: EndpointMaker = tcp_endpoint

    def backoff_s(self, failures: int) -> float:
        """Return the delay after a number of consecutive failures.

        The first delay is short: a follower often fetches a new leader's partition before that broker knows that it
        leads, and meanwhile producers with ``acks=all`` wait.
        """
        return min(BACKOFF_SECONDS_MIN * 2.0 ** min(failures - 1, 30), self.backoff_s_max)


BACKOFF_SECONDS_MIN = 0.02
