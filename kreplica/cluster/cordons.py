"""What stands in ``/kreplica/cordoned/ID``: that a broker gets no new replicas; what it has stays."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import Reader, dump, load


@dataclass(frozen=True, slots=True)
class Cordon:
    """:param since_ms: when it was cordoned, since 1970; None where nobody noted it.

    :param reason: of whoever did it; empty where none was given.
    """

    since_ms: int | None = None
    reason: str = ""


def encode_cordon(cordon: Cordon) -> bytes:
    return dump({"version": 1, "since_ms": cordon.since_ms, "reason": cordon.reason})


def decode_cordon(broker_id: int, data: bytes) -> Cordon:
    """An empty znode, as a person may make it by hand, is a cordon too.

    :raise ZnodeError: naming the znode and what is wrong with it.
    """
    if not data.strip():
        return Cordon()
    path = znodes.cordoned_path(broker_id)
    document = load(path, data)
    with Reader(path):
        since_ms = document.get("since_ms")
        return Cordon(None if since_ms is None else int(since_ms), str(document.get("reason") or ""))
