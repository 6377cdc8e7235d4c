"""Invariants after a schedule: no acknowledged record is lost, duplicated or visible early or only partly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from loads import ABORTED, COMMITTED, PARTITIONS, Transactions

from tests.support.outside_clients import SteadyProducer
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.replica_files import read_log

EXAMPLES_MAX = 5


def check_acknowledged(producer: SteadyProducer, found: Sequence[Mapping[int, int]], *, once: bool) -> Iterator[str]:
    """Find violations: every acknowledged record is at its offset; with idempotence, exactly once and in order.

    :param found: for each partition, offset -> number of the record.
    """
    for partition, records in enumerate(found):
        missing = [o for o, number in producer.acknowledged[partition].items() if records.get(o) != number]
        yield from _report("lost", partition, missing)
        if once:
            numbers = [records[offset] for offset in sorted(records)]
            yield from _report("duplicated", partition, [n for n, copies in Counter(numbers).items() if copies > 1])
            yield from _report("never written", partition, sorted(set(range(producer.sent[partition])) - set(numbers)))
            if numbers != sorted(numbers):
                yield f"partition {partition} is out of order"


def check_transactions(transactions: Transactions, received: Sequence[Sequence[int]]) -> Iterator[str]:
    """Find violations: a committed transaction is in each partition once, an aborted one in none, an unknown one in all
    or none.

    :param received: for each partition, the numbers that a reader of committed records received.
    """
    counts = [Counter(numbers) for numbers in received]
    for number, outcome in transactions.outcomes.items():
        copies = [count[number] for count in counts]
        allowed = {COMMITTED: ([1] * PARTITIONS,), ABORTED: ([0] * PARTITIONS,)}.get(
            outcome, ([0] * PARTITIONS, [1] * PARTITIONS)
        )
        if copies not in allowed:
            yield f"transaction {number} is {outcome}, but its records per partition are {copies}"


def check_prefix(received: Sequence[Sequence[tuple[int, int]]], final: Sequence[Mapping[int, int]]) -> Iterator[str]:
    """Find violations: records that a reader received during the faults are in the final log, in the order of offsets.

    :param received: for each partition, (offset, number) in the order of reading.
    """
    for partition, rows in enumerate(received):
        offsets = [offset for offset, _ in rows]
        if offsets != sorted(set(offsets)):
            yield f"partition {partition} was not read in the order of offsets"
        yield from _report("dirty reads", partition, [o for o, number in rows if final[partition].get(o) != number])


def check_copy(source: Sequence[Iterable[bytes]], target: Sequence[Iterable[bytes]]) -> Iterator[str]:
    """Find violations: each record of the source was copied once, to the same partition, in order."""
    for partition, (originals, copied) in enumerate(zip(source, target, strict=True)):
        expected, values = [b"seen " + value for value in originals], list(copied)
        if values != expected:
            extra = sum((Counter(values) - Counter(expected)).values())
            lost = sum((Counter(expected) - Counter(values)).values())
            yield f"copy of partition {partition}: {lost} lost, {extra} extra, {len(values)} of {len(expected)}"


def check_replicas(cluster: ProcessCluster, topic: str) -> Iterator[str]:
    """Find differences between the replicas of a topic after all clients have stopped writing."""

    def differences() -> list[str]:
        found = []
        for partition, view in cluster.partitions(topic).items():
            logs = [read_log(cluster, replica, topic, partition) for replica in view.replicas]
            if any(log != logs[0] for log in logs):
                found.append(f"replicas of {topic}-{partition} differ: {[len(log) for log in logs]} batches")
        return found

    try:
        wait_until(lambda: not differences(), f"equal replicas of {topic}", 20, differences)
    except AssertionError:
        yield from differences()


def _report(kind: str, partition: int, items: Sequence[int]) -> Iterator[str]:
    if items:
        yield f"partition {partition}: {len(items)} {kind}, such as {items[:EXAMPLES_MAX]}"
