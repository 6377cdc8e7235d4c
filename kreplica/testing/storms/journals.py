"""Replays the controller journals of a storm: each must lead to the same decisions again."""

from __future__ import annotations

from kreplica.testing.cluster.cluster import LOG_DIRECTORY, SimulatedCluster
from kreplica.testing.replay.difference import explain
from kreplica.testing.replay.entry_text import EntryText
from kreplica.testing.replay.reading import JournalUnreadable, read_journals
from kreplica.testing.replay.replay import replay_all


def check_journals(cluster: SimulatedCluster) -> int:
    """Replay the complete entries of each broker's journal.

    :return: number of compared entries.
    :raise AssertionError: explains the first difference.
    """
    compared = 0
    for machine in cluster.brokers.values():
        try:
            files = read_journals(machine.host.disk, LOG_DIRECTORY)
        except JournalUnreadable:
            continue  # the disk was full or the machine lost power before the journal was started
        for outcome in replay_all(files):
            compared += outcome.entries
            if outcome.difference is not None:
                entry_text = EntryText(outcome.file.head, lambda: None)
                raise AssertionError("\n".join(explain(outcome.difference, outcome.file, entry_text)))
    return compared
