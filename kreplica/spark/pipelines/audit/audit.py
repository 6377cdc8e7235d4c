"""Audit: compares all replicas of a cluster below the high watermark, and reports the differences.

Each task compares slices of partitions, with all replicas of a slice side by side. Differences are confirmed by a
second comparison, since brokers may write, compact and delete in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp
from kreplica.client_core.options import ClientOptions
from kreplica.spark.connection_security import PLAINTEXT, ConnectionSecurity
from kreplica.spark.pipelines.audit.cluster import ClusterFacts, cluster_facts
from kreplica.spark.pipelines.audit.file_replicas import broker_directories, file_replicas
from kreplica.spark.pipelines.audit.plan import AnyReplica, Plan, Slice, group_slices, plan_for_brokers, plan_for_files
from kreplica.spark.pipelines.audit.replica_comparison import LogStartMoved, ReplicaDeleted, compare
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Difference, Kind
from kreplica.spark.pipelines.audit.report import AuditReport, merge_slices
from kreplica.spark.pipelines.audit.work_file import WorkFile
from kreplica.spark.pipelines.jobs import map_in_jobs
from kreplica.spark.pipelines.progress import Progress, Report, ignore_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS_MAX = 5
"""Maximum number of attempts to compare a slice if log start offsets move or brokers fail during the comparison."""

CLIENT = ClientOptions(client_id="kreplica-audit", operation_timeout_s=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """Options of an audit.

    :param log_dirs: log directories whose ``meta.properties`` contain the broker ID.
    :param log_dirs_of: log directories by broker.
    :param bootstrap: bootstrap brokers; required without log directories.
    :param via_brokers: fetch replicas from their brokers instead of reading files.
    :param topics: empty: all topics, including internal ones.
    :param compacted: topics to treat as compacted, in addition to those that the cluster reports.
    :param resume: path of a work file with the results of an interrupted audit.
    :param security: security of the connections to brokers.
    """

    log_dirs: tuple[str, ...] = ()
    log_dirs_of: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    bootstrap: str | None = None
    via_brokers: bool = False
    topics: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()
    resume: Path | None = None
    security: ConnectionSecurity = PLAINTEXT

    @property
    def identity(self) -> dict[str, object]:
        """Options that must be the same when a work file is resumed."""
        directories = {str(broker): list(paths) for broker, paths in sorted(self.log_dirs_of.items())}
        return {
            "via_brokers": self.via_brokers,
            "log_dirs": [] if self.via_brokers else [*self.log_dirs, directories],
            "bootstrap": self.bootstrap,
            "topics": sorted(self.topics),
            "compacted": sorted(self.compacted),
        }


class SliceResult(NamedTuple):
    """Result of one slice.

    :param number: number of the slice.
    :param notes: replicas that could not be read, and why.
    :param is_done: True if the slice was compared, or none of its replicas exists any longer.
    """

    number: int
    comparison: Comparison
    notes: tuple[str, ...]
    is_done: bool


def audit(spark: SparkSession, options: AuditOptions, report: Report = ignore_progress) -> AuditReport:
    """Compare all replicas.

    :raise StorageError: a log directory is invalid.
    :raise ClientError: the cluster does not respond.
    :raise ValueError: a topic does not exist, or the work file belongs to another audit.
    """
    started_s = monotonic()
    plan = make_plan(options)
    work = WorkFile(options.resume, options.identity)
    taken_over = {each: found for each, found in work.read().items() if each in plan.found}
    remaining = [each for each in plan.slices if each.partition not in taken_over]
    found = {each: [own] for each, own in plan.found.items() if each not in taken_over}
    notes = plan.all_notes()
    open_slices = dict.fromkeys(found, 0)
    for each in remaining:
        open_slices[each.partition] += 1
    done_bytes = read_bytes = undone = 0
    total_bytes = sum(each.size_bytes for each in remaining)
    with work:
        for result in _run(spark, remaining):
            slice_ = remaining[result.number]
            found[slice_.partition].append(result.comparison)
            notes += result.notes
            undone += not result.is_done
            open_slices[slice_.partition] -= 1
            if not open_slices[slice_.partition] and not result.notes:
                work.add(merge_slices(found[slice_.partition]))
            done_bytes += slice_.size_bytes
            read_bytes += sum(each.size_bytes for each in result.comparison.coverages)
            report(Progress("compared", done_bytes, total_bytes, size_bytes=read_bytes))
    work.remove()
    partitions = [*(merge_slices(own) for own in found.values()), *taken_over.values()]
    return AuditReport(
        source="brokers" if options.via_brokers else "files",
        cluster_id=plan.cluster_id,
        brokers=plan.brokers,
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
        notes=tuple(dict.fromkeys(notes)),
        taken_over=len(taken_over),
        undone=undone,
        read_bytes=read_bytes,
        seconds=monotonic() - started_s,
    )


def make_plan(options: AuditOptions) -> Plan:
    """Plan the audit; differences found without reading batches are confirmed by planning twice."""
    first = _plan(options)
    if not any(found.differences for found in first.found.values()):
        return first
    plan = _plan(options)
    for partition, found in plan.found.items():
        unconfirmed = first.found.get(partition)
        _keep_common(found, unconfirmed.differences if unconfirmed is not None else [])
    return plan


def _plan(options: AuditOptions) -> Plan:
    facts: ClusterFacts | None = None
    replicas_by_broker = {}
    cluster_id: str | None = None
    if not options.via_brokers:
        for each in broker_directories(options.log_dirs, options.log_dirs_of):
            cluster_id = each.cluster_id
            own = file_replicas(each)
            replicas_by_broker[each.broker] = {
                partition: own[partition]
                for partition in own
                if not options.topics or partition.topic in options.topics
            }
    if options.bootstrap is not None:
        with options.security.open_cluster(options.bootstrap, CLIENT) as cluster:
            facts = cluster_facts(cluster, options.topics)
        if cluster_id is not None and facts.cluster_id not in (None, cluster_id):
            raise ValueError(
                f"the directories belong to cluster {cluster_id}, but {options.bootstrap} to {facts.cluster_id}"
            )
    if not options.via_brokers:
        plan = plan_for_files(replicas_by_broker, cluster_id, options.compacted, facts)
    elif facts is not None:
        plan = plan_for_brokers(facts, options.compacted, CLIENT, options.security)
    else:
        raise ValueError("bootstrap brokers are required to read replicas from brokers")
    unknown = options.topics - {each.topic for each in plan.found}
    if unknown:
        raise ValueError(f"topics without a replica: {', '.join(sorted(unknown))}")
    return plan


def _run(spark: SparkSession, slices: list[Slice]) -> Iterator[SliceResult]:
    """Yield the results of the slices as they finish."""
    numbers = {id(each): number for number, each in enumerate(slices)}
    groups = [[(numbers[id(each)], each) for each in group] for group in group_slices(slices)]
    for done in map_in_jobs(spark, compare_slices, groups):
        yield from done


def compare_slices(group: list[tuple[int, Slice]]) -> list[SliceResult]:
    """Compare the slices of one task."""
    return [SliceResult(number, *compare_slice(slice_)) for number, slice_ in group]


def compare_slice(slice_: Slice) -> tuple[Comparison, tuple[str, ...], bool]:
    """Compare one slice; differences are confirmed by a second comparison.

    :return: the result, the reasons why some replicas were not read, and ``is_done`` of ``SliceResult``.
    """
    notes: list[str] = []
    is_gone = False
    for _ in range(ATTEMPTS_MAX):
        readable = _readable_replicas(slice_)
        replicas, notes, is_gone = readable.replicas, readable.notes, readable.is_gone
        if not replicas:
            break
        try:
            found = compare(slice_.partition, replicas, slice_.span)
            if found.differences:
                _keep_common(found, compare(slice_.partition, replicas, slice_.span).differences)
        except (ClientError, LogStartMoved, ReplicaDeleted) as error:
            # A broker failed, or a log start offset moved: compare the remaining replicas again.
            notes.append(f"{slice_.partition}: {error}")
            continue
        for broker, why in readable.missing.items():
            found.add(broker, slice_.span.start, Kind.MISSING, why)
        return found, tuple(notes), True
    return Comparison(*slice_.partition, slice_.span.start, slice_.span.end), tuple(notes), is_gone


def _keep_common(found: Comparison, others: Iterable[Difference]) -> None:
    """Remove the differences that the second comparison did not find."""
    confirmed = {each.identity for each in others}
    confirmed_differences = [each for each in found.differences if each.identity in confirmed]
    found.difference_count -= len(found.differences) - len(confirmed_differences)
    found.differences = confirmed_differences


class _ReadableReplicas(NamedTuple):
    """The readable replicas of a slice.

    :param notes: reasons why other replicas cannot be read.
    :param missing: error responses of the brokers that do not have the replica.
    :param is_gone: True if no replica exists, for example because the topic was deleted.
    """

    replicas: list[AnyReplica]
    notes: list[str]
    missing: dict[int, str]
    is_gone: bool


def _readable_replicas(slice_: Slice) -> _ReadableReplicas:
    replicas: list[AnyReplica] = []
    notes: list[str] = []
    missing: dict[int, str] = {}
    deleted_count = 0
    for each in slice_.replicas:
        try:
            each.first_offset()
        except ReplicaDeleted as error:
            deleted_count += 1
            notes.append(f"{slice_.partition}: {error}")
        except ClientError as error:
            cause = error.__cause__ if isinstance(error, GaveUp) else error
            if isinstance(cause, BrokerRefused):
                missing[each.broker] = f"the broker responded with {cause.code.name}"
            else:
                notes.append(f"{slice_.partition}: broker {each.broker} is unreachable: {error}")
        else:
            replicas.append(each)
    if not replicas:
        notes += [f"{slice_.partition}: broker {broker}: {why}" for broker, why in missing.items()]
    return _ReadableReplicas(replicas, notes, missing, deleted_count + len(missing) == len(slice_.replicas))
