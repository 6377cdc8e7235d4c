"""What a client may do with something, as brokers tell it (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

NOT_TOLD = -(2**31)


class AclOperation(IntEnum):
    """An operation that may be allowed."""

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
    """The operations of an answer's bit field; None where it tells of none."""
    return None if bits == NOT_TOLD else frozenset(each for each in AclOperation if bits >> each & 1)
