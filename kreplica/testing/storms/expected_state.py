"""What may be, after what an administrator asked for and was answered."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Answer(Enum):
    """How a request ended."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It may have been obeyed, or may be later."""


class Expected(Generic[T]):
    """One thing that administrators change: the values that it may have.

    :ivar values: in the order in which they were asked for; one of them alone where the last answer was certain.
    """

    def __init__(self, value: T) -> None:
        self.values: dict[T, None] = {value: None}
        self._before = self.values
        self._under_way = 0
        self._is_alone = True
        self._is_late = False

    def asked(self, value: T) -> None:
        """A request is on its way.  Where another is too, nobody can say which of them comes last."""
        self._under_way += 1
        self._is_alone = self._under_way == 1
        self._before = self.values
        self.values = {**self.values, value: None}

    def answered(self, value: T, answer: Answer) -> None:
        """The request for that value is over.  One without an answer may be obeyed at any time from now on."""
        self._under_way -= 1
        self._is_late = self._is_late or answer is Answer.UNKNOWN
        if self._is_alone and not self._is_late:
            self.values = {value: None} if answer is Answer.DONE else self._before
