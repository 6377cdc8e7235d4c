"""A broker raises its limit on open files to the hard limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

from kreplica.service.process.open_files import raise_limit

UNLIMITED = -1


class Limits(SimpleNamespace):
    """Fake of the functions of the module ``resource`` that concern open files.

    :param can_raise: False if the system refuses a higher limit.
    """

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = UNLIMITED

    def __init__(self, soft: int, hard: int, *, can_raise: bool = True) -> None:
        super().__init__(current=(soft, hard), can_raise=can_raise)

    def getrlimit(self, kind: int) -> tuple[int, int]:
        assert kind == self.RLIMIT_NOFILE
        return self.current  # type: ignore[no-any-return]

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == self.RLIMIT_NOFILE
        if not self.can_raise:
            raise ValueError("not allowed to raise maximum limit")
        self.current = limits


@implementer(ILogObserver)
class Warnings(list[str]):
    """Recorded warnings."""

    def __call__(self, event: dict[str, object]) -> None:
        if event["log_level"].name == "warn":  # type: ignore[attr-defined]
            self.append(str(event["log_format"]))


@pytest.mark.parametrize(
    ("limits", "after", "words"),
    [
        pytest.param(Limits(1024, 524_288), 524_288, [], id="raised to the hard limit"),
        pytest.param(Limits(524_288, 524_288), 524_288, [], id="already high"),
        pytest.param(Limits(1024, UNLIMITED), UNLIMITED, [], id="unlimited"),
        pytest.param(Limits(256, 4096), 4096, ["only"], id="low, with a warning"),
        pytest.param(Limits(1024, UNLIMITED, can_raise=False), 1024, ["cannot raise", "only"], id="higher one refused"),
        pytest.param(
            Limits(20_000, UNLIMITED, can_raise=False), 20_000, ["cannot raise"], id="refused, but sufficient"
        ),
    ],
)
def test_limit(limits: Limits, after: int, words: list[str]) -> None:
    """The soft limit is raised to the hard limit; if it remains low or cannot be raised, a warning is logged."""
    warnings = Warnings()
    globalLogPublisher.addObserver(warnings)
    try:
        raise_limit(limits)
    finally:
        globalLogPublisher.removeObserver(warnings)
    assert limits.current[0] == after
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
