"""Maps transaction error codes to those that older API versions define."""

from __future__ import annotations

from kreplica.errors import ErrorCode


def fenced_code(code: ErrorCode, *, is_known: bool) -> int:
    """Return PRODUCER_FENCED, or its predecessor for versions before KIP-588."""
    if code is ErrorCode.PRODUCER_FENCED and not is_known:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)
