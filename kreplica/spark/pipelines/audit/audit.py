"""Audit: proof that all replicas of a cluster agree below the high watermark, or where they do not.

Each task compares pieces of partitions, all replicas of each side by side.  What differs is looked at a second time
before it is told: brokers may write, clean and delete meanwhile, and what was only under way is gone by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kreplica.blocking import Cluster
from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp
from kreplica.client_core.options import ClientOptions
from kreplica.spark.pipelines.audit.cluster import ClusterFacts, cluster_facts
from kreplica.spark.pipelines.audit.file_replicas import broker_directories, file_replicas
from kreplica.spark.pipelines.audit.plan import AnyReplica, Plan, Slice, grouped, plan_of_brokers, plan_of_files
from kreplica.spark.pipelines.audit.replica_comparison import LogMoved, ReplicaGone, compare
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Difference, Kind
from kreplica.spark.pipelines.audit.report import AuditReport, merged
from kreplica.spark.pipelines.audit.work_file import WorkFile
from kreplica.spark.pipelines.jobs import in_jobs
from kreplica.spark.pipelines.progress import Progress, Report, nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKS_MAX = 5
"""So often a piece is begun anew whose logs' beginnings move away under it, or a broker."""

CLIENT = ClientOptions(client_id="kreplica-audit", operation_timeout_s=15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What is audited, and how.

    :param log_dirs: of brokers that the directories themselves name; ``log_dirs_of`` by broker.
    :param bootstrap: brokers to ask; needed without directories.
    :param via_brokers: read replicas from their brokers and not from files.
    :param topics: none: all that there are, also the internal ones.
    :param compacted: topics that cleaners compact, as far as nobody else says so.
    :param resume: keeps what is done of an audit that does not come to its end.
    """

    log_dirs: tuple[str, ...] = ()
    log_dirs_of: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    bootstrap: str | None = None
    via_brokers: bool = False
    topics: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()
    resume: Path | None = None

    @property
    def identity(self) -> dict[str, object]:
        """By which a work file is known to be of the same audit."""
        directories = {str(broker): list(paths) for broker, paths in sorted(self.log_dirs_of.items())}
        return {
            "via_brokers": self.via_brokers,
            "log_dirs": [] if self.via_brokers else [*self.log_dirs, directories],
            "bootstrap": self.bootstrap,
            "topics": sorted(self.topics),
            "compacted": sorted(self.compacted),
        }


class Looked(NamedTuple):
    """What came of one piece.

    :param number: of the piece.
    :param notes: replicas that could not be looked at.
    :param is_done: False: nothing could be compared.
    """

    number: int
    comparison: Comparison
    notes: tuple[str, ...]
    is_done: bool


def audit(spark: SparkSession, options: AuditOptions, report: Report = nobody) -> AuditReport:
    """Compare all replicas.

    :raise StorageError: a directory is not what it should be.
    :raise ClientError: the cluster does not answer.
    :raise ValueError: a topic is not there, or the work file is of another audit.
    """
    began_s = monotonic()
    plan = make_plan(options)
    work = WorkFile(options.resume, options.identity)
    taken_over = {each: found for each, found in work.read().items() if each in plan.found}
    left = [each for each in plan.slices if each.partition not in taken_over]
    found = {each: [own] for each, own in plan.found.items() if each not in taken_over}
    notes = plan.all_notes()
    open_slices = dict.fromkeys(found, 0)
    for each in left:
        open_slices[each.partition] += 1
    done_bytes = read_bytes = undone = 0
    total_bytes = sum(each.size_bytes for each in left)
    with work:
        for looked in _run(spark, left):
            piece = left[looked.number]
            found[piece.partition].append(looked.comparison)
            notes += looked.notes
            undone += not looked.is_done
            open_slices[piece.partition] -= 1
            if not open_slices[piece.partition] and not looked.notes:
                work.add(merged(found[piece.partition]))
            done_bytes += piece.size_bytes
            read_bytes += sum(each.size_bytes for each in looked.comparison.coverages)
            report(Progress("compared", done_bytes, total_bytes, size_bytes=read_bytes))
    work.remove()
    partitions = [*(merged(own) for own in found.values()), *taken_over.values()]
    return AuditReport(
        source="brokers" if options.via_brokers else "files",
        cluster_id=plan.cluster_id,
        brokers=plan.brokers,
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
        notes=tuple(dict.fromkeys(notes)),
        taken_over=len(taken_over),
        undone=undone,
        read_bytes=read_bytes,
        seconds=monotonic() - began_s,
    )


def make_plan(options: AuditOptions) -> Plan:
    """What is to be compared, as directories and cluster are now; what is clear without reading is looked at twice."""
    first = _plan(options)
    if not any(found.differences for found in first.found.values()):
        return first
    plan = _plan(options)
    for partition, found in plan.found.items():
        before = first.found.get(partition)
        _keep_common(found, before.differences if before is not None else [])
    return plan


def _plan(options: AuditOptions) -> Plan:
    facts: ClusterFacts | None = None
    held = {}
    cluster_id: str | None = None
    if not options.via_brokers:
        for each in broker_directories(options.log_dirs, options.log_dirs_of):
            cluster_id = each.cluster_id
            own = file_replicas(each)
            held[each.broker] = {p: own[p] for p in own if not options.topics or p.topic in options.topics}
    if options.bootstrap is not None:
        with Cluster(options.bootstrap, options=CLIENT) as cluster:
            facts = cluster_facts(cluster, options.topics)
        if cluster_id is not None and facts.cluster_id not in (None, cluster_id):
            raise ValueError(f"the directories are of cluster {cluster_id}, {options.bootstrap} of {facts.cluster_id}")
    if not options.via_brokers:
        plan = plan_of_files(held, cluster_id, options.compacted, facts)
    elif facts is not None:
        plan = plan_of_brokers(facts, options.compacted, CLIENT)
    else:
        raise ValueError("to read replicas from brokers, somebody has to say where those are")
    unknown = options.topics - {each.topic for each in plan.found}
    if unknown:
        raise ValueError(f"there is no topic {', '.join(sorted(unknown))}, or no replica of it")
    return plan


def _run(spark: SparkSession, slices: list[Slice]) -> Iterator[Looked]:
    """What comes of each piece, in the order in which they are done."""
    numbers = {id(each): number for number, each in enumerate(slices)}
    groups = [[(numbers[id(each)], each) for each in group] for group in grouped(slices)]
    for done in in_jobs(spark, look_all, groups):
        yield from done


def look_all(group: list[tuple[int, Slice]]) -> list[Looked]:
    """What a task does."""
    return [Looked(number, *look(piece)) for number, piece in group]


def look(piece: Slice) -> tuple[Comparison, tuple[str, ...], bool]:
    """Compare one piece; what differs is looked at twice.

    :return: and why some replicas were not looked at, and whether all was done that could be.
    """
    notes: list[str] = []
    is_gone = False
    for _ in range(LOOKS_MAX):
        reached = _reachable(piece)
        replicas, notes, is_gone = reached.replicas, reached.notes, reached.is_gone
        if not replicas:
            break
        try:
            found = compare(piece.partition, replicas, piece.span)
            if found.differences:
                _keep_common(found, compare(piece.partition, replicas, piece.span).differences)
        except (ClientError, LogMoved, ReplicaGone) as error:
            # A broker that has gone, or a beginning that has moved: who is still there is looked at anew.
            notes.append(f"{piece.partition}: {error}")
            continue
        for broker, why in reached.refused.items():
            found.add(broker, piece.span.start, Kind.MISSING, why)
        return found, tuple(notes), True
    return Comparison(*piece.partition, piece.span.start, piece.span.end), tuple(notes), is_gone


def _keep_common(found: Comparison, others: Iterable[Difference]) -> None:
    """Forget what was not found the other time."""
    places = {each.place for each in others}
    kept = [each for each in found.differences if each.place in places]
    found.difference_count -= len(found.differences) - len(kept)
    found.differences = kept


class _Reached(NamedTuple):
    """Which replicas of a piece can be read.

    :param notes: why others cannot; ``refused`` are those of which their brokers say that they have none.
    :param is_gone: there is no replica any more, as of a topic that was deleted.
    """

    replicas: list[AnyReplica]
    notes: list[str]
    refused: dict[int, str]
    is_gone: bool


def _reachable(piece: Slice) -> _Reached:
    replicas: list[AnyReplica] = []
    notes: list[str] = []
    refused: dict[int, str] = {}
    gone = 0
    for each in piece.replicas:
        try:
            each.first_offset()
        except ReplicaGone as error:
            gone += 1
            notes.append(f"{piece.partition}: {error}")
        except ClientError as error:
            cause = error.__cause__ if isinstance(error, GaveUp) else error
            if isinstance(cause, BrokerRefused):
                refused[each.broker] = f"the broker answers {cause.code.name}"
            else:
                notes.append(f"{piece.partition}: broker {each.broker} is not reached: {error}")
        else:
            replicas.append(each)
    if not replicas:
        notes += [f"{piece.partition}: broker {broker}: {why}" for broker, why in refused.items()]
    return _Reached(replicas, notes, refused, gone + len(refused) == len(piece.replicas))
