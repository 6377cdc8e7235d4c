"""``kreplica topic copy``: a topic's records to another topic, of the same cluster or another one."""

from __future__ import annotations

from dataclasses import dataclass

import click

from kreplica.blocking import (
    Cluster,
    Codec,
    Isolation,
    Producer,
    ProducerOptions,
    Reader,
    ReaderOptions,
    TopicPartition,
)
from kreplica.blocking.admin import topic_settings
from kreplica.blocking.offsets import committed_offsets, earliest_offsets, end_offsets
from kreplica.cli.http.session import Failed
from kreplica.cli.records.data_access import (
    accounted,
    bootstrap_option,
    brokers_option,
    codec_option,
    existing_topic,
    open_cluster,
)
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.cli.records.positions import span
from kreplica.cli.transfer.copying import Checksums, Copy, CopyPlan, read_back
from kreplica.cli.transfer.topic_creation import Making, find_or_make, making_options
from kreplica.client_core.metadata import TopicView


@click.command
@click.argument("source")
@click.argument("target")
@bootstrap_option("--from-bootstrap", "Brokers of the source's cluster.")
@brokers_option("--to-bootstrap", "Brokers of the target's cluster.  [default: the source's]")
@making_options
@click.option("--by-key", is_flag=True, help="Choose partitions by key instead of keeping them.")
@click.option("--read-uncommitted", is_flag=True, help="Include records of open and aborted transactions.")
@click.option("--transactional", metavar="ID",
              help="Write in transactions of that id, with the source's offsets in them: a copy that is started again "
              "with the same id goes on where it stopped, and nothing is there twice.")  # fmt: skip
@click.option("--verify", is_flag=True, help="Read the target at the end and compare counts and checksums.")
@codec_option
def command(
    source: str,
    target: str,
    from_bootstrap: str,
    to_bootstrap: str | None,
    making: Making,
    by_key: bool,
    read_uncommitted: bool,
    transactional: str | None,
    verify: bool,
    codec: Codec,
) -> None:
    """Copy the records that a topic has now to another topic, of the same cluster or another one.

    Partitions, times, keys, values and headers are kept, and the order within each partition; offsets are new.  Brokers
    may fail meanwhile: nothing is lost, and nothing written twice.

    \b
    kreplica topic copy orders orders-2027 --create --verify
    kreplica topic copy orders orders --from-bootstrap a:9092 --to-bootstrap b:9092 --transactional orders-to-b
    """
    to_bootstrap = to_bootstrap or from_bootstrap
    if source == target and to_bootstrap == from_bootstrap:
        raise click.UsageError("a topic cannot be copied to itself")
    if by_key and transactional is not None:
        raise click.UsageError("--by-key and --transactional exclude each other: offsets are kept by partition")
    isolation = Isolation.READ_UNCOMMITTED if read_uncommitted else Isolation.READ_COMMITTED
    progress = CopyProgress(f"copy {source}", None)
    with (
        open_cluster(from_bootstrap) as from_cluster,
        open_cluster(to_bootstrap) as to_cluster,
        accounted(lambda: _told(progress, transactional)),
    ):
        view = existing_topic(from_cluster, source)
        made = find_or_make(to_cluster, target, making, len(view.partitions))
        if len(made.partitions) < len(view.partitions) and not by_key:
            raise Failed(
                f"{source} has {len(view.partitions)} partitions and {target} {len(made.partitions)}:"
                " let it grow, or use --by-key"
            )
        way = _Way(from_cluster, to_cluster, view, made, isolation)
        checking = _Checking(to_cluster, made) if verify else None
        options = ProducerOptions(codec=codec, transactional_id=transactional)
        with Producer(to_cluster, options) as producer:
            sums = None if checking is None else checking.sums
            way.copy(CopyPlan(source, target, by_key, transactional), producer, sums, progress)
        click.echo(f"{target}: {progress.summary}")
        if checking is not None:
            checking.check()


def _told(progress: CopyProgress, transactional: str | None) -> str:
    if transactional is None:
        return f"{records_text(progress.records)} sent, the last of them may be missing"
    return f"{records_text(progress.records)} sent; started again, it goes on behind the last transaction"


@dataclass(frozen=True, slots=True)
class _Way:
    """From where to where."""

    from_cluster: Cluster
    to_cluster: Cluster
    source: TopicView
    target: TopicView
    isolation: Isolation

    def copy(self, plan: CopyPlan, producer: Producer, sums: Checksums | None, progress: CopyProgress) -> None:
        """Copy what the source has now."""
        partitions = [TopicPartition(self.source.name, each.partition) for each in self.source.partitions]
        starts = earliest_offsets(self.from_cluster, partitions)
        if plan.group is not None:
            producer.begin()  # first: it ends what an earlier run of that id left open
            starts |= self._committed(plan.group)
        ends = end_offsets(self.from_cluster, partitions, self.isolation)
        progress.expect(span(starts, ends))
        options = ReaderOptions(isolation=self.isolation)
        with progress, Reader(self.from_cluster, starts, ends=ends, options=options) as reader:
            Copy(plan, reader, producer, sums).run(progress)

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        found = committed_offsets(self.to_cluster, group, [self.target.name])
        has = {each.partition for each in self.source.partitions}
        return {
            TopicPartition(self.source.name, each.partition): committed.offset
            for each, committed in found.items()
            if each.partition in has
        }


class _Checking:
    """Reads what was written since it was made, and compares it with what was sent."""

    def __init__(self, cluster: Cluster, target: TopicView) -> None:
        self._cluster = cluster
        self._target = target
        self._starts = self._ends()
        stamps = topic_settings(cluster, target.name)["message.timestamp.type"].value == "LogAppendTime"
        self._with_times = not stamps
        self.sums = Checksums(with_times=self._with_times)

    def _ends(self) -> dict[TopicPartition, int]:
        partitions = [TopicPartition(self._target.name, each.partition) for each in self._target.partitions]
        return end_offsets(self._cluster, partitions)

    def check(self) -> None:
        """:raise Failed: something differs."""
        found = read_back(self._cluster, self._starts, self._ends(), with_times=self._with_times)
        differences = self.sums.differences(found)
        if differences:
            raise Failed(
                f"{self._target.name} is not what was sent: {'; '.join(differences)} (records of others, written"
                " meanwhile, count too)"
            )
        click.echo(f"{self._target.name}: {records_text(found.count)} read again: counts and checksums agree")
