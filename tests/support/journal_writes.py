"""Writes of partition states in the controllers' journals, to compare them with the traces of a storm."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.cluster import documents, znodes
from kreplica.controller.journal.value_json import decode_bytes
from kreplica.model import LeaderAndIsr, TopicPartition
from kreplica.testing.cluster.cluster import LOG_DIRECTORY, SimulatedCluster
from kreplica.testing.replay.reading import JournalFile, JournalUnreadable, read_journals


def journaled_states(cluster: SimulatedCluster, key: TopicPartition) -> list[LeaderAndIsr]:
    """Return the states of a partition that controllers have written, according to their journals.

    Only writes that ZooKeeper acknowledged are returned.
    """
    states = []
    for machine in cluster.brokers.values():
        try:
            files = read_journals(machine.host.disk, LOG_DIRECTORY)
        except JournalUnreadable:
            continue  # the disk was full or the machine lost power before the journal was started
        for file in files:
            states += list(_states(file, znodes.partition_state_path(*key)))
    return states


def _states(file: JournalFile, path: str) -> Iterator[LeaderAndIsr]:
    sent: dict[int, list[LeaderAndIsr]] = {}
    for line in file.lines:
        if line.get("out") == "multi":
            sent[line["op"]] = [
                documents.decode_partition_state(path, decode_bytes(operation[2]), operation[3] + 1)
                for operation in line["operations"]
                if operation[:2] == ["set", path]
            ]
        elif line.get("in") == "answer" and line["of"] == "multi" and "error" not in line:
            yield from sent.pop(line["op"], [])
