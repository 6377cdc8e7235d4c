"""What stands in ``/kreplica/plan_throttle``: how fast replicas that are being added are copied while plans run."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import Reader, dump, load


def encode_throttle(bytes_per_second: int | None) -> bytes:
    """:param bytes_per_second: of each broker, as the leader and as a follower; None for no throttle."""
    return dump({"version": 1, "bytes_per_second": bytes_per_second})


def decode_throttle(data: bytes) -> int | None:
    """An empty znode, as it is made, throttles nothing.

    :raise ZnodeError: naming the znode and what is wrong with it.
    """
    if not data:
        return None
    document = load(znodes.PLAN_THROTTLE, data)
    with Reader(znodes.PLAN_THROTTLE):
        rate = document["bytes_per_second"]
        if rate is not None and (type(rate) is not int or rate < 1):
            raise ValueError(f"bytes_per_second is a number above 0 or null, not {rate!r}")
        return rate
