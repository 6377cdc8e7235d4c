"""How a broker fetches from the leaders that it follows."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.wire.framing import REQUEST_SIZE_MAX

LEFT_TO_THE_SYSTEM = -1


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """Kafka's settings of the same names, read when the broker starts.

    :param wait_ms_max: ``replica.fetch.wait.max.ms``.
    :param bytes_min: ``replica.fetch.min.bytes``.
    :param partition_bytes_max: ``replica.fetch.max.bytes``.
    :param answer_bytes_max: ``replica.fetch.response.max.bytes``.
    :param frame_bytes_max: the longest answer that is taken at all: one batch may be longer than was asked for.
    :param backoff_s_max: ``replica.fetch.backoff.ms``: what repeated failures come to; the first is tried again soon.
    :param timeout_s: ``replica.socket.timeout.ms``: how long an answer may take, and a connection to come about.
    :param receive_buffer_bytes: ``replica.socket.receive.buffer.bytes``, or -1 to leave it to the operating system.
    """

    wait_ms_max: int = 500
    bytes_min: int = 1
    partition_bytes_max: int = 1 << 20
    answer_bytes_max: int = 10 << 20
    frame_bytes_max: int = REQUEST_SIZE_MAX
    backoff_s_max: float = 1.0
    timeout_s: float = 30.0
    receive_buffer_bytes: int = LEFT_TO_THE_SYSTEM

    def backoff_s(self, failures: int) -> float:
        """How long to wait after so many failures one after the other.

        A partition that is led anew is asked for before its leader knows that it leads: a first failure is most often
        over within milliseconds, and whoever produces with ``acks=all`` waits for it.
        """
        return min(BACKOFF_SECONDS_MIN * 2.0 ** min(failures - 1, 30), self.backoff_s_max)


BACKOFF_SECONDS_MIN = 0.02
