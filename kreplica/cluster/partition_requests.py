"""Data of ``/admin/partitions_add/T/P`` and ``/admin/partitions_remove/T/P``."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.cluster.json_documents import dump, load_any
from kreplica.cluster.znodes import ZnodeError


def encode_addition(replicas: Sequence[int]) -> bytes:
    """Encode the replicas of a partition to add, preferred leader first."""
    return dump(list(replicas))


def decode_addition(path: str, data: bytes) -> tuple[int, ...]:
    """Parse the replicas of a partition to add.

    :raise ZnodeError: the data is not a list of broker ids.
    """
    replicas = load_any(path, data)
    if not isinstance(replicas, list) or not all(type(replica) is int for replica in replicas):
        raise ZnodeError(f"{path}: expected a JSON list of broker ids, such as [1,2,3]")
    return tuple(replicas)


def encode_removal(wait_ms: int | None = None) -> bytes:
    """Encode a request to remove a partition.

    :param wait_ms: time for which the partition is read-only before its removal; None for the controller's setting.
    """
    if wait_ms is None:
        return b""
    return dump({"version": 1, "wait_ms": wait_ms})


def decode_removal(path: str, data: bytes) -> int | None:
    """Return the time in milliseconds for which the partition is read-only before its removal.

    None means the controller's setting.

    :raise ZnodeError: the data is neither empty nor a valid document.
    """
    if not data.strip():
        return None
    document = load_any(path, data)
    wait_ms = document.get("wait_ms") if isinstance(document, dict) else -1
    if wait_ms is not None and (type(wait_ms) is not int or wait_ms < 0):
        raise ZnodeError(f'{path}: expected empty data or {{"version":1,"wait_ms":MILLISECONDS}}')
    return wait_ms
