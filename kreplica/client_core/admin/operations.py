"""Operations that a client is authorized to perform (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

NO_OPERATIONS = -(2**31)


class AclOperation(IntEnum):
    """An operation that a client may be authorized to perform."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def parse_operations(bits: int) -> frozenset[AclOperation] | None:
    """Parse the bit field of operations; None if the response does not contain it."""
    return None if bits == NO_OPERATIONS else frozenset(each for each in AclOperation if bits >> each & 1)
