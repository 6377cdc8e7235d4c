"""How a client treats brokers, whatever it asks of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client treats brokers; seconds and bytes.

    :param client_id: what brokers call it in logs and quotas.
    :param connect_timeout_s: for one connection, with the first question on it.
    :param request_timeout_s: for one answer, beyond what the broker is asked to wait.
    :param operation_timeout_s: for one operation with all its tries, unless it is told otherwise.
    :param backoff_s: between the first two tries, about; the wait doubles up to ``backoff_s_max``.
    :param answer_size_max: of one answer.
    :param metadata_age_s_max: after so long the cluster is asked again how it looks.
    """

    client_id: str = "kreplica"
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    operation_timeout_s: float = 60.0
    backoff_s: float = 0.05
    backoff_s_max: float = 1.0
    answer_size_max: int = 256 << 20
    metadata_age_s_max: float = 300.0
