"""A broker may open as many files as the machine's owner lets it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer

from kreplica.service.process.open_files import raise_limit

UNLIMITED = -1


class Limits(SimpleNamespace):
    """What the module ``resource`` has of open files.

    :param takes: whether the system takes a higher limit.
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
    """What was warned of."""

    def __call__(self, event: dict[str, object]) -> None:
        if event["log_level"].name == "warn":  # type: ignore[attr-defined]
            self.append(str(event["log_format"]))


@pytest.mark.parametrize(
    ("limits", "after", "told"),
    [
        pytest.param(Limits(1024, 524_288), 524_288, [], id="raised to what is allowed"),
        pytest.param(Limits(524_288, 524_288), 524_288, [], id="high already"),
        pytest.param(Limits(1024, UNLIMITED), UNLIMITED, [], id="nobody limits it"),
        pytest.param(Limits(256, 4096), 4096, ["only"], id="low, and told"),
        pytest.param(Limits(1024, UNLIMITED, takes=False), 1024, ["stays", "only"], id="the system takes no more"),
        pytest.param(Limits(20_000, UNLIMITED, takes=False), 20_000, ["stays"], id="it takes no more, but enough"),
    ],
)
def test_limit(limits: Limits, after: int, told: list[str]) -> None:
    """The soft limit becomes the hard one, and one that is low is told to whoever reads the log."""
    warnings = Warnings()
    globalLogPublisher.addObserver(warnings)
    try:
        raise_limit(limits)
    finally:
        globalLogPublisher.removeObserver(warnings)
    assert limits.now[0] == after
    assert len(warnings) == len(told)
    assert all(word in warning for word, warning in zip(told, warnings, strict=True))
