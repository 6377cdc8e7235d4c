"""Log messages of programs that fail a storm."""

from __future__ import annotations

import pytest
from twisted.internet.defer import fail
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.storms.log_watch import LogWatch, UnexpectedLog

log = Logger()


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_CONTROLLER), OSError("full"), KeyError("x")])
def test_unhandled_errors(error: Exception) -> None:
    """This includes errors that may be logged if they are handled: no code handled this Deferred's failure."""
    with LogWatch() as watch:
        fail(error)
    with pytest.raises(UnexpectedLog, match="unhandled error"):
        watch.check()


def test_handled_errors_of_the_environment() -> None:
    """A program that logs such an error has handled it."""
    with LogWatch() as watch:
        try:
            raise OSError("full")
        except OSError:
            log.failure("no room")
        log.critical("offline")
    watch.check()


def test_logged_bugs() -> None:
    """A program that continues after a bug fails the storm too."""
    with LogWatch() as watch:
        try:
            raise KeyError("x")
        except KeyError:
            log.failure("a handler failed")
    with pytest.raises(UnexpectedLog, match="a handler failed"):
        watch.check()
