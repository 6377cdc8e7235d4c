"""A pytest plugin that writes the outcome of each test as JSON to the file in ``OUTCOMES``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

TEXT_SIZE_MAX = 4000


class Outcomes:
    """Outcome of each test: "passed", or the first other outcome of its setup, call or teardown."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._outcomes.setdefault(report.nodeid, "passed")
        if before == "passed" and report.outcome != "passed":
            self._outcomes[report.nodeid] = f"{report.outcome} ({report.when}): {self._text(report)}"

    def pytest_sessionfinish(self) -> None:
        Path(os.environ["OUTCOMES"]).write_text(json.dumps(dict(sorted(self._outcomes.items()))))

    @staticmethod
    def _text(report: pytest.TestReport) -> str:
        skipped = isinstance(report.longrepr, tuple)
        return report.longrepr[2] if skipped else report.longreprtext[-TEXT_SIZE_MAX:]  # type: ignore[index]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Outcomes())
