"""Replay of the journals of clusters in storms: every controller's decisions are repeated, despite all faults."""

from __future__ import annotations

import pytest

from kreplica.controller.journal import files
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.journals import check_journals
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.storm import Storm, faults_of_seed

# Coroutines of killed processes are collected at any point.
pytestmark = pytest.mark.filterwarnings("ignore:.*<coroutine object:pytest.PytestUnraisableExceptionWarning")

OPTIONS = {"journal": "yes", "messages_per_s": "20", "fault_interval_s": "1", "seconds": "30"}
SOAK = {"journal": "yes"}
ENTRIES_MIN = 50


def replayed(seed: int, chosen: dict[str, str]) -> None:
    """Run a storm and replay its controllers' journals; other tests check the cluster."""
    with deferred_collection():
        options = options_of(seed, chosen)
        storm = Storm(seed, options)
        storm.execute(faults_of_seed(seed, options))
        assert check_journals(storm.run.cluster) > ENTRIES_MIN


@pytest.mark.parametrize("seed", [1, 2])
def test_storms(seed):
    """Controllers that die, lose sessions and connections, and are paused: each journal is replayed completely."""
    replayed(seed, {**OPTIONS, "side_topics": "yes" if seed == 1 else "no"})


def test_a_storm_with_short_files(monkeypatch):
    """Each file is as short as possible, and most files start within a term."""
    monkeypatch.setattr(files, "FILES_COUNT", 2**20)
    replayed(3, {**OPTIONS, "side_topics": "yes"})


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 41))
def test_many_storms(seed, monkeypatch):
    """Forty seeds, every second one with short files."""
    if seed % 2:
        monkeypatch.setattr(files, "FILES_COUNT", 2**20)
    replayed(seed, SOAK)
