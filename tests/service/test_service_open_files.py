"""A broker raises its limit of open files to the hard limit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

from kreplica.service.process.open_files import raise_limit

UNLIMITED = -1


class Limits(SimpleNamespace):
    """Fake of the functions of the module ``resource`` about open files.

    :param takes: True if the system accepts a higher limit.
    """

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = UNLIMITED

    def __init__(self, soft: int, hard: int, *, takes: bool = True) -> None:
        super().__init__(now=(soft, hard), takes=takes)

    def getrlimit(self, what: int) -> tuple[int, int]:
        assert what == self.RLIMIT_NOFILE
        return self.now  # type: ignore[no-any-return]

    def setrlimit(self, what: int, wanted: tuple[int, int]) -> None:
        assert what == self.RLIMIT_NOFILE
        if not self.takes:
            raise ValueError("not allowed to raise maximum limit")
        self.now = wanted


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
        pytest.param(Limits(524_288, 524_288), 524_288, [], id="high enough"),
        pytest.param(Limits(1024, UNLIMITED), UNLIMITED, [], id="unlimited"),
        pytest.param(Limits(256, 4096), 4096, ["only"], id="low, with a warning"),
        pytest.param(Limits(1024, UNLIMITED, takes=False), 1024, ["cannot raise", "only"], id="higher limit rejected"),
        pytest.param(Limits(20_000, UNLIMITED, takes=False), 20_000, ["cannot raise"], id="rejected, but sufficient"),
    ],
)
def test_limit(limits: Limits, after: int, words: list[str]) -> None:
    """The soft limit becomes the hard one; a low one is logged as a warning."""
    warnings = Warnings()
    globalLogPublisher.addObserver(warnings)
    try:
        raise_limit(limits)
    finally:
        globalLogPublisher.removeObserver(warnings)
    assert limits.now[0] == after
    assert len(warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))
