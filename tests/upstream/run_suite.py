"""Runs a suite in a separate pytest process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from suites import Suite

TEST_TIME_S_MAX = 30
TIME_S_MAX = 200


def run_suite(suite: Suite, directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Unpack a suite and run it.

    :param directory: a new directory, which is created.
    :param environment: environment variables of the suite, such as the addresses of brokers.
    :return: test -> "passed", or another outcome.
    :raise AssertionError: pytest did not finish; the message is its output.
    """
    directory.mkdir()
    suite.unpack(directory)
    command = [sys.executable, "-m", "pytest", "-q", suite.run, "-p", "outcomes_plugin"]
    # With its own configuration and root, so that this project's pytest settings do not apply.
    isolation = ["-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    limit = ["-p", "pytest_timeout", "--timeout", str(TEST_TIME_S_MAX)]
    file = directory / "outcomes.json"
    path = os.pathsep.join([str(directory), str(Path(__file__).parent)])
    done = subprocess.run(
        [*command, *isolation, *limit, "--tb", "short"],
        env={**os.environ, "PYTHONPATH": path, "OUTCOMES": str(file), **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIME_S_MAX,
        check=False,
    )
    assert file.exists(), done.stdout[-6000:] + done.stderr[-2000:]
    outcomes: dict[str, str] = json.loads(file.read_text())
    return outcomes
