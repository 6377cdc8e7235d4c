"""Log messages that make a storm fail."""

from __future__ import annotations

import pytest
from twisted.internet.defer import fail
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.storms.log_watch import LogWatch, UnexpectedLog

log = Logger()


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_CONTROLLER), OSError("full"), KeyError("x")])
def test_unhandled_errors(error: Exception) -> None:
    """A Deferred failure that no code handles fails the storm, even if such an error may be logged when handled."""
    with LogWatch() as watch:
        fail(error)
    with pytest.raises(UnexpectedLog, match="unhandled error"):
        watch.check()


def test_handled_errors_of_the_environment() -> None:
    """A program may log an environment error that it has handled."""
    with LogWatch() as watch:
        try:
            raise OSError("full")
        except OSError:
            log.failure("disk full")
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
