"""A seed determines every event of a storm, in any process and whatever ran before in it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.outcome import Outcome, run_storm

SEED = 4
STORMY = StormOptions(seconds=20.0, messages_per_s=50, brokers=4, synced=True, fault_interval_s=0.5, overlap=4)
"""Options of a storm that is short enough to run often, with about thirty faults of most kinds."""

WITH_APPLICATIONS = StormOptions(
    seconds=8.0, messages_per_s=5, batch_records=5, partitions=1, fault_interval_s=0.5, overlap=3, applications=True
)

CHILD = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_testing_determinism as tests
print(tests.storm(options=getattr(tests, sys.argv[1])))
"""


def storm(seed: int = SEED, options: StormOptions = STORMY) -> str:
    """Run a storm and return a digest of its events.

    :raise AssertionError: the storm failed; otherwise two storms with the same failure would compare as equal.
    """
    digest = sha256()
    outcome = run_storm(seed, options, trace=lambda line: digest.update(line.encode() + b"\n"))
    assert not outcome.failure, outcome.failure
    return f"{digest.hexdigest()} of {outcome.events} events"


@pytest.mark.parametrize("name", ["STORMY", "WITH_APPLICATIONS"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_seed_determines_the_storm_in_every_process(name: str) -> None:
    """A storm has the same events in processes with different hash seeds, and after another storm in this process."""
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CHILD, name],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    options: StormOptions = globals()[name]
    other = storm(SEED + 1, replace(options, seconds=3.0))
    here = storm(options=options)
    outputs = [child.communicate(timeout=120)[0].strip() for child in children]
    assert outputs == [here, here]
    assert other != here


def test_a_storm_that_failed_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm that fails raises an error, so that two equal failures do not pass as equal storms."""
    short = replace(STORMY, seconds=1.0)

    run = run_storm

    def run_failing_storm(*words: Any, **named: Any) -> Outcome:
        return replace(run(*words, **named), failure="a record was lost")

    assert " events" in storm(options=short)
    monkeypatch.setitem(globals(), "run_storm", run_failing_storm)
    with pytest.raises(AssertionError, match="a record was lost"):
        storm(options=short)
