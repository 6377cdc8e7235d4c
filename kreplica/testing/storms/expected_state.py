"""States that are allowed after an administrator's requests."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class RequestResult(Enum):
    """Result of a request."""

    DONE = "done"
    REJECTED = "refused"
    UNKNOWN = "unknown"
    """The request may have taken effect, or may do so later."""


class Expected(Generic[T]):
    """Allowed values of one property that administrators change.

    :ivar values: in the order of the requests; only one if the result of the last request is certain.
    """

    def __init__(self, value: T) -> None:
        self.values: dict[T, None] = {value: None}
        self._previous_values = self.values
        self._pending_count = 0
        self._is_only_request = True
        self._had_unknown_result = False

    def requested(self, value: T) -> None:
        """Add the value of a request that is being sent.  The order of concurrent requests is unknown."""
        self._pending_count += 1
        self._is_only_request = self._pending_count == 1
        self._previous_values = self.values
        self.values = {**self.values, value: None}

    def completed(self, value: T, result: RequestResult) -> None:
        """Narrow the values by the result of a request.  A request with an unknown result may take effect later."""
        self._pending_count -= 1
        self._had_unknown_result = self._had_unknown_result or result is RequestResult.UNKNOWN
        if self._is_only_request and not self._had_unknown_result:
            self.values = {value: None} if result is RequestResult.DONE else self._previous_values
