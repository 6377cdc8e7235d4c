"""The journals that controllers kept in a storm: each is repeated to the same decisions."""

from __future__ import annotations

from kreplica.testing.cluster.cluster import LOG_DIRECTORY, SimulatedCluster
from kreplica.testing.replay.difference import explain
from kreplica.testing.replay.reading import JournalUnreadable, read_journals
from kreplica.testing.replay.replay import replay_all
from kreplica.testing.replay.story import Story


def check_journals(cluster: SimulatedCluster) -> int:
    """Repeat what is whole of each broker's journal.

    :return: how many entries were compared.
    :raise AssertionError: with the first difference, explained.
    """
    compared = 0
    for machine in cluster.brokers.values():
        try:
            files = read_journals(machine.host.disk, LOG_DIRECTORY)
        except JournalUnreadable:
            continue  # its disk was full, or lost power, before there was any
        for outcome in replay_all(files):
            compared += outcome.entries
            if outcome.difference is not None:
                story = Story(outcome.file.head, lambda: None)
                raise AssertionError("\n".join(explain(outcome.difference, outcome.file, story)))
    return compared
