"""kazoo's own test suite on the embedded coordinator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

# Number of kazoo 2.11.0's tests without those in ``DOES_NOT_APPLY``; docs/explanation/coordinator.md states it too.
TEST_COUNT = 305
# Tests mostly wait, so more processes are useful than there are processors.
PROCESS_COUNT = 6


@pytest.mark.timeout(200)
def test_kazoos_own_suite_passes(tmp_path: Path) -> None:
    """The suite covers locks, queues, watches, caches and other recipes."""
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--pyargs", "kazoo.tests", "-p", "kazoo_on_coordinator"]
    # A separate configuration and root: this project's pytest settings do not apply to kazoo's tests.
    isolation = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "--disable-plugin-autoload"]
    limit = ["-p", "pytest_timeout", "--timeout", "60"]
    parallel = ["-p", "xdist.plugin", "-n", str(PROCESS_COUNT), "--dist", "worksteal", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *isolation, *limit, *parallel],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path.cwd())])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    totals = ElementTree.parse(report).getroot()[0].attrib
    assert {name: int(totals[name]) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": TEST_COUNT,
        "failures": 0,
        "errors": 0,
        "skipped": 0,
    }
