"""Timeouts and limits of a client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Timeouts and limits of a client; times in seconds, sizes in bytes.

    :param client_id: name of the client in the brokers' logs and quotas.
    :param connect_timeout_s: timeout of one connection attempt, including the negotiation of API versions.
    :param request_timeout_s: timeout of one response, in addition to the time that the broker is asked to wait.
    :param operation_timeout_s: timeout of one operation with all its retries, unless the call sets its own timeout.
    :param backoff_s: upper bound of the first delay between retries; the bound doubles up to ``backoff_s_max``.
    :param response_size_max: maximum size of one response.
    :param metadata_age_s_max: maximum age of the cluster's metadata; older metadata is refreshed before use.
    """

    client_id: str = "kreplica"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    operation_timeout_s: float = 60.0
    backoff_s: float = 0.05
    backoff_s_max: float = 1.0
    response_size_max: int = 256 << 20
    metadata_age_s_max: float = 300.0
