"""What an error means for a member of a group: pure."""

from __future__ import annotations

from enum import Enum, auto

from kreplica.client_core.errors import BrokerRefused, ClientError
from kreplica.errors import ErrorCode


class Verdict(Enum):
    """What is to be done."""

    REJOIN = auto()
    """The group rebalances: join again."""

    OUTDATED = auto()
    """The group has gone on without this member, which is not in its generation: it has nothing, and joins again."""

    UNKNOWN = auto()
    """The group does not know this member: it has nothing, and joins as a new one."""

    ELSEWHERE = auto()
    """Nothing is known but that this broker cannot help: look for the coordinator, and try again."""

    WAIT = auto()
    """Try again, later."""

    FINAL = auto()
    """This member cannot be in the group."""


_VERDICTS = {
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Verdict.OUTDATED,
    ErrorCode.FENCED_MEMBER_EPOCH: Verdict.OUTDATED,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.UNKNOWN,
    ErrorCode.NOT_COORDINATOR: Verdict.ELSEWHERE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.ELSEWHERE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.WAIT,
    ErrorCode.UNKNOWN_SERVER_ERROR: Verdict.WAIT,
}


def verdict(error: ClientError) -> Verdict:
    """What an error of a request means that a member sent."""
    if isinstance(error, BrokerRefused):
        found = _VERDICTS.get(error.code)
        if found is None:
            found = Verdict.WAIT if error.retriable else Verdict.FINAL
        return found
    return Verdict.ELSEWHERE if error.retriable else Verdict.FINAL
