"""What a storm takes amiss in the log of its programs."""

from __future__ import annotations

import pytest
from twisted.internet.defer import fail
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.storms.log_watch import LogWatch, UnexpectedLog

log = Logger()


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_CONTROLLER), OSError("full"), KeyError("x")])
def test_errors_that_nobody_handled(error: Exception) -> None:
    """Also those that may be logged by whoever expects them: somebody waited for that answer, or should have."""
    with LogWatch() as watch:
        fail(error)
    with pytest.raises(UnexpectedLog, match="nobody handled an error"):
        watch.check()


def test_errors_of_the_world_around_a_program() -> None:
    """A program that logs them has handled them."""
    with LogWatch() as watch:
        try:
            raise OSError("full")
        except OSError:
            log.failure("no room")
        log.critical("offline")
    watch.check()


def test_mistakes_that_are_logged() -> None:
    """A program that went on after one is not taken for sound."""
    with LogWatch() as watch:
        try:
            raise KeyError("x")
        except KeyError:
            log.failure("a handler failed")
    with pytest.raises(UnexpectedLog, match="a handler failed"):
        watch.check()
