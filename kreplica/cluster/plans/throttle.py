"""Data of ``/kreplica/plan_throttle``: the replication throttle for new replicas while plans run."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import ZnodeErrors, dump, load


def encode_throttle(bytes_per_second: int | None) -> bytes:
    """Encode the throttle.

    :param bytes_per_second: per broker and direction; None for no throttle.
    """
    return dump({"version": 1, "bytes_per_second": bytes_per_second})


def decode_throttle(data: bytes) -> int | None:
    """Parse the throttle; an empty znode means no throttle.

    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    if not data:
        return None
    document = load(znodes.PLAN_THROTTLE, data)
    with ZnodeErrors(znodes.PLAN_THROTTLE):
        rate = document["bytes_per_second"]
        if rate is not None and (type(rate) is not int or rate < 1):
            raise ValueError(f"bytes_per_second must be a number above 0 or null, not {rate!r}")
        return rate
