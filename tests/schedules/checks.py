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
    """Find violations: every acknowledged record is at its offset; with idempotence also once and in order.

    :param found: for each partition, offset -> number of the record.
    """
    for partition, at in enumerate(found):
        missing = [o for o, number in producer.acknowledged[partition].items() if at.get(o) != number]
        yield from _counted("lost", partition, missing)
        if once:
            numbers = [at[offset] for offset in sorted(at)]
            yield from _counted("doubled", partition, [n for n, times in Counter(numbers).items() if times > 1])
            yield from _counted("never written", partition, sorted(set(range(producer.sent[partition])) - set(numbers)))
            if numbers != sorted(numbers):
                yield f"partition {partition} is out of order"


def check_transactions(transactions: Transactions, seen: Sequence[Sequence[int]]) -> Iterator[str]:
    """Find violations: a committed transaction is once in each partition, an aborted one in none, an unknown one in all
    or none.

    :param seen: for each partition, the numbers that a reader of committed records received.
    """
    counts = [Counter(numbers) for numbers in seen]
    for number, outcome in transactions.outcomes.items():
        times = [count[number] for count in counts]
        allowed = {COMMITTED: ([1] * PARTITIONS,), ABORTED: ([0] * PARTITIONS,)}.get(
            outcome, ([0] * PARTITIONS, [1] * PARTITIONS)
        )
        if times not in allowed:
            yield f"transaction {number} is {outcome}, and seen {times} times"


def check_prefix(early: Sequence[Sequence[tuple[int, int]]], final: Sequence[Mapping[int, int]]) -> Iterator[str]:
    """Find violations: records that a reader received during the faults are in the final log, in the order of offsets.

    :param early: for each partition, (offset, number) in the order of reading.
    """
    for partition, rows in enumerate(early):
        offsets = [offset for offset, _ in rows]
        if offsets != sorted(set(offsets)):
            yield f"partition {partition} was not read in the order of offsets"
        yield from _counted("dirty reads", partition, [o for o, number in rows if final[partition].get(o) != number])


def check_copy(source: Sequence[Iterable[bytes]], target: Sequence[Iterable[bytes]]) -> Iterator[str]:
    """Find violations: each record of the source was copied once, within its partition, in order."""
    for partition, (wanted, copied) in enumerate(zip(source, target, strict=True)):
        expected, values = [b"seen " + value for value in wanted], list(copied)
        if values != expected:
            doubled = sum((Counter(values) - Counter(expected)).values())
            lost = sum((Counter(expected) - Counter(values)).values())
            yield f"copy of partition {partition}: {lost} lost, {doubled} doubled, {len(values)} of {len(expected)}"


def check_replicas(cluster: ProcessCluster, topic: str) -> Iterator[str]:
    """Find differences between the replicas of a topic after all clients have stopped writing."""

    def differing() -> list[str]:
        found = []
        for partition, view in cluster.partitions(topic).items():
            logs = [read_log(cluster, replica, topic, partition) for replica in view.replicas]
            if any(log != logs[0] for log in logs):
                found.append(f"replicas of {topic}-{partition} differ: {[len(log) for log in logs]} batches")
        return found

    try:
        wait_until(lambda: not differing(), f"equal replicas of {topic}", 20, differing)
    except AssertionError:
        yield from differing()


def _counted(what: str, partition: int, items: Sequence[int]) -> Iterator[str]:
    if items:
        yield f"partition {partition}: {len(items)} {what}, such as {items[:EXAMPLES_MAX]}"
