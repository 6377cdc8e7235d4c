"""Error codes of transactions that only later versions of an API know."""

from __future__ import annotations

from kreplica.errors import ErrorCode


def fenced_code(code: ErrorCode, *, is_known: bool) -> int:
    """The code for an answer whose version knows PRODUCER_FENCED, or does not yet (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and not is_known:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return int(code)
