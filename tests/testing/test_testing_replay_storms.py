"""Replay of journals from storms: every controller's decisions are reproduced despite all faults."""

from __future__ import annotations

import pytest

from kreplica.controller.journal import files
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.journals import check_journals
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.storm import Storm, faults_of_seed

# Coroutines of killed processes may be collected at any time.
pytestmark = pytest.mark.filterwarnings("ignore:.*<coroutine object:pytest.PytestUnraisableExceptionWarning")

OPTIONS = {"journal": "yes", "messages_per_s": "20", "fault_interval_s": "1", "seconds": "30"}
SOAK = {"journal": "yes"}
ENTRIES_MIN = 50


def replay_storm(seed: int, chosen: dict[str, str]) -> None:
    """Run a storm and replay the journals of its controllers; other tests check the cluster."""
    with deferred_collection():
        options = options_of(seed, chosen)
        storm = Storm(seed, options)
        storm.execute(faults_of_seed(seed, options))
        assert check_journals(storm.run.cluster) > ENTRIES_MIN


@pytest.mark.parametrize("seed", [1, 2])
def test_storms(seed):
    """Each journal is replayed completely, although controllers die, pause, and lose sessions and connections."""
    replay_storm(seed, {**OPTIONS, "side_topics": "yes" if seed == 1 else "no"})


def test_a_storm_with_short_files(monkeypatch):
    """Journals with the shortest possible files, which mostly start in the middle of a term, are replayed."""
    monkeypatch.setattr(files, "FILE_COUNT", 2**20)
    replay_storm(3, {**OPTIONS, "side_topics": "yes"})


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 41))
def test_many_storms(seed, monkeypatch):
    """The journals of forty storms are replayed, half of them with short files."""
    if seed % 2:
        monkeypatch.setattr(files, "FILE_COUNT", 2**20)
    replay_storm(seed, SOAK)
