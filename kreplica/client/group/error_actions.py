"""Reactions of a group member to errors from its coordinator."""

from __future__ import annotations

from enum import Enum, auto

from kreplica.client_core.errors import BrokerRefused, ClientError
from kreplica.errors import ErrorCode


class ErrorAction(Enum):
    """Reaction of a member to an error."""

    REJOIN = auto()
    """The group is rebalancing: rejoin."""

    OUTDATED = auto()
    """The member is not in the group's current generation: drop all partitions and rejoin."""

    UNKNOWN = auto()
    """The group does not know the member: drop all partitions and join as a new member."""

    LOOK_UP = auto()
    """The broker may not be the coordinator: look up the coordinator and retry."""

    WAIT = auto()
    """Retry later."""

    FINAL = auto()
    """The member cannot join the group."""


_ACTIONS = {
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: ErrorAction.OUTDATED,
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorAction.OUTDATED,
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.UNKNOWN,
    ErrorCode.NOT_COORDINATOR: ErrorAction.LOOK_UP,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorAction.LOOK_UP,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.WAIT,
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorAction.WAIT,
}


def error_action(error: ClientError) -> ErrorAction:
    """Return the reaction to the error of a member's request."""
    if isinstance(error, BrokerRefused):
        found = _ACTIONS.get(error.code)
        if found is None:
            found = ErrorAction.WAIT if error.retriable else ErrorAction.FINAL
        return found
    return ErrorAction.LOOK_UP if error.retriable else ErrorAction.FINAL
