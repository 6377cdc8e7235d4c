"""Addresses and errors in the rows of a FindCoordinator response."""

from __future__ import annotations

from typing import Any

from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.errors import ErrorCode


def coordinator_address(kind: CoordinatorKind, row: dict[str, Any]) -> Address | ClientError:
    """Return the coordinator's address or the error in its row."""
    try:
        check(row, f"coordinator of {kind.name.lower()} {row['key']!r}")
    except ClientError as error:
        return error
    return Address(row["host"], row["port"])


def missing_in_response(kind: CoordinatorKind) -> ClientError:
    """Return the error for a group or transactional id that has no row."""
    what = f"coordinator of {kind.name.lower()}"
    return BrokerRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE, what, "the response does not contain it")
