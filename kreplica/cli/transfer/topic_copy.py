"""``kreplica topic copy``: copy a topic's records to another topic, in the same cluster or another one."""

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
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.data_access import (
    bootstrap_option,
    brokers_option,
    client_config_option,
    codec_option,
    open_cluster,
    report_failures,
)
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.cli.transfer.copying import Checksums, Copy, CopyPlan, read_checksums
from kreplica.cli.transfer.topic_options import by_key_option, creation_options, read_uncommitted_option
from kreplica.client_core.metadata import TopicView
from kreplica.transfer.offset_ranges import offset_count
from kreplica.transfer.topics import (
    TopicCreation,
    check_partition_count,
    existing_topic,
    find_or_create,
    keeps_timestamps,
)


@click.command
@click.argument("source")
@click.argument("target")
@bootstrap_option("--from-bootstrap", "Bootstrap brokers of the source cluster.")
@client_config_option("from-")
@brokers_option("--to-bootstrap", "Bootstrap brokers of the target cluster.  [default: the source cluster]")
@client_config_option("to-")
@creation_options(source="SOURCE")
@by_key_option
@read_uncommitted_option
@click.option("--transactional", metavar="ID",
              help="Write in transactions with this transactional ID.  Each transaction also commits the offsets of "
              "the source, so that the same command resumes without duplicates.")  # fmt: skip
@click.option("--verify", is_flag=True, help="After copying, read the records back, and compare counts and checksums.")
@codec_option
def command(
    source: str,
    target: str,
    from_bootstrap: str,
    to_bootstrap: str | None,
    creation: TopicCreation,
    by_key: bool,
    read_uncommitted: bool,
    transactional: str | None,
    verify: bool,
    codec: Codec,
) -> None:
    """Copy the current records of a topic to another topic, in the same cluster or another one.

    Partition, timestamp, key, value and headers of each record, and the order within each partition, are preserved;
    offsets are new.  If brokers fail during the copy, no record is lost or written twice.

    \b
    kreplica topic copy orders orders-2027 --create --verify
    kreplica topic copy orders orders --from-bootstrap a:9092 --to-bootstrap b:9092 --transactional orders-to-b
    """
    to_bootstrap = to_bootstrap or from_bootstrap
    if source == target and to_bootstrap == from_bootstrap:
        raise click.UsageError("a topic cannot be copied to itself")
    if by_key and transactional is not None:
        raise click.UsageError("--by-key and --transactional cannot be combined: offsets are committed by partition")
    isolation = Isolation.READ_UNCOMMITTED if read_uncommitted else Isolation.READ_COMMITTED
    progress = CopyProgress(f"copy {source}", None)
    with (
        open_cluster(from_bootstrap, "from-") as from_cluster,
        open_cluster(to_bootstrap, "to-") as to_cluster,
        report_failures(lambda: _state(progress, transactional)),
    ):
        source_view = existing_topic(from_cluster, source)
        target_view = find_or_create(to_cluster, target, creation, len(source_view.partitions))
        if not by_key:
            check_partition_count(source, len(source_view.partitions), target_view)
        route = _Route(from_cluster, to_cluster, source_view, target_view, isolation)
        verification = _Verification(to_cluster, target_view) if verify else None
        options = ProducerOptions(codec=codec, transactional_id=transactional)
        with Producer(to_cluster, options) as producer:
            sums = None if verification is None else verification.sums
            route.copy(CopyPlan(source, target, by_key, transactional), producer, sums, progress)
        click.echo(f"{target}: {progress.summary}")
        if verification is not None:
            verification.check()


def _state(progress: CopyProgress, transactional: str | None) -> str:
    if transactional is None:
        return f"{records_text(progress.records)} sent; the last ones may be missing from the target"
    return f"{records_text(progress.records)} sent; the same command resumes after the last committed transaction"


@dataclass(frozen=True, slots=True)
class _Route:
    """Clusters and topics of a copy."""

    from_cluster: Cluster
    to_cluster: Cluster
    source: TopicView
    target: TopicView
    isolation: Isolation

    def copy(self, plan: CopyPlan, producer: Producer, sums: Checksums | None, progress: CopyProgress) -> None:
        """Copy the current records of the source."""
        partitions = [TopicPartition(self.source.name, each.partition) for each in self.source.partitions]
        starts = earliest_offsets(self.from_cluster, partitions)
        if plan.group is not None:
            producer.begin()  # first, since it ends the open transaction of an earlier run
            starts |= self._committed_offsets(plan.group)
        ends = end_offsets(self.from_cluster, partitions, self.isolation)
        progress.set_total(offset_count(starts, ends))
        options = ReaderOptions(isolation=self.isolation)
        with progress, Reader(self.from_cluster, starts, ends=ends, options=options) as reader:
            Copy(plan, reader, producer, sums).run(progress)

    def _committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        found = committed_offsets(self.to_cluster, group, [self.target.name])
        existing = {each.partition for each in self.source.partitions}
        return {
            TopicPartition(self.source.name, each.partition): committed.offset
            for each, committed in found.items()
            if each.partition in existing
        }


class _Verification:
    """Compares the records sent with those written to the target since this object was created."""

    def __init__(self, cluster: Cluster, target: TopicView) -> None:
        self._cluster = cluster
        self._target = target
        self._starts = self._ends()
        self._with_timestamps = keeps_timestamps(topic_settings(cluster, target.name))
        self.sums = Checksums(with_timestamps=self._with_timestamps)

    def _ends(self) -> dict[TopicPartition, int]:
        partitions = [TopicPartition(self._target.name, each.partition) for each in self._target.partitions]
        return end_offsets(self._cluster, partitions)

    def check(self) -> None:
        """Compare the records.

        :raise CommandFailed: they differ.
        """
        found = read_checksums(self._cluster, self._starts, self._ends(), with_timestamps=self._with_timestamps)
        differences = self.sums.differences(found)
        if differences:
            raise CommandFailed(
                f"{self._target.name} differs from the records sent: {'; '.join(differences)} (records that other"
                " producers wrote during the copy are counted too)"
            )
        click.echo(f"{self._target.name}: {records_text(found.count)} read back: counts and checksums match")
