"""The latest leader epoch of a log is that of its last epoch entry, after any change of the entries."""

from __future__ import annotations

import random

from kreplica.model import NO_EPOCH
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage.formats.leader_epochs import LeaderEpochs


def latest_entry(epochs: LeaderEpochs) -> int:
    return epochs.entries[-1].epoch if epochs.entries else NO_EPOCH


def test_latest_epoch_is_that_of_the_last_entry(tmp_path) -> None:
    """The operations are assignment, truncation at either end, clearing, writing and reading."""
    chance = random.Random(1)
    directory = str(tmp_path)
    epochs = LeaderEpochs(directory, OsDisk())
    assert epochs.latest == NO_EPOCH
    seen = set()
    for _ in range(2000):
        act = chance.choice(["assign"] * 6 + ["truncate_to", "truncate_start", "clear", "load"])
        if act == "assign":
            epochs.assign(chance.randrange(-1, epochs.latest + 3), chance.randrange(100))
        elif act == "load":
            epochs.write()
            epochs = LeaderEpochs.load(directory, OsDisk())
        elif act == "clear":
            epochs.clear()
        else:
            getattr(epochs, act)(chance.randrange(100))
        assert epochs.latest == latest_entry(epochs)
        seen.add((act, bool(epochs.entries)))
    assert ("truncate_to", True) in seen
    assert ("load", True) in seen
