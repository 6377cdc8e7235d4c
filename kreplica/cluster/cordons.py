"""Data of ``/kreplica/cordoned/ID``: the broker keeps its replicas and is not assigned new ones."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.cluster import znodes
from kreplica.cluster.json_documents import ZnodeErrors, dump, load


@dataclass(frozen=True, slots=True)
class Cordon:
    """Cordon of a broker.

    :param since_ms: time of the cordon in milliseconds since 1970; None if unknown.
    :param reason: given by the operator; may be empty.
    """

    since_ms: int | None = None
    reason: str = ""


def encode_cordon(cordon: Cordon) -> bytes:
    return dump({"version": 1, "since_ms": cordon.since_ms, "reason": cordon.reason})


def decode_cordon(broker_id: int, data: bytes) -> Cordon:
    """Parse a cordon; an empty znode, possibly created by hand, is valid.

    :raise ZnodeError: the data is malformed; the message contains the path and the reason.
    """
    if not data.strip():
        return Cordon()
    path = znodes.cordoned_path(broker_id)
    document = load(path, data)
    with ZnodeErrors(path):
        since_ms = document.get("since_ms")
        return Cordon(None if since_ms is None else int(since_ms), str(document.get("reason") or ""))
