"""Audits of brokers' log directories: plan, comparison and work file, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from local_audit import run_audit, run_plan

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsFile
from kreplica.spark.pipelines.audit import audit as audit_module
from kreplica.spark.pipelines.audit.audit import AuditOptions, compare_slice, make_plan
from kreplica.spark.pipelines.audit.cluster import ClusterFacts, PartitionFacts
from kreplica.spark.pipelines.audit.file_replicas import BrokerDirectories, file_replicas
from kreplica.spark.pipelines.audit.plan import Slice, group_slices, plan_for_files
from kreplica.spark.pipelines.audit.replica_comparison import LogStartMoved, Span
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Kind
from kreplica.spark.pipelines.audit.report import AuditReport
from kreplica.spark.pipelines.audit.work_file import WorkFile
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

T0 = TopicPartition("t", 0)


def batch(number: int, value: bytes = b"value") -> bytes:
    """Return a batch of five records that starts at offset ``5 * number``."""
    records = [Record(5 * number + each, 1000, b"key", value) for each in range(5)]
    return build_batch(records, base_offset=5 * number, leader_epoch=0)


class Directory:
    """A broker's log directory."""

    def __init__(self, path: Path, broker: int, *, cluster: str = "c") -> None:
        self.path = path
        path.mkdir(parents=True)
        (path / "meta.properties").write_text(f"version=0\ncluster.id={cluster}\nbroker.id={broker}\n")

    def checkpoint(self, name: str, **offsets: int) -> None:
        rows = [f"{partition.replace('_', ' ')} {offset}" for partition, offset in offsets.items()]
        (self.path / name).write_text("\n".join(["0", str(len(rows)), *rows, ""]))

    def replica(self, partition: str, batches: int = 10, *, value: bytes = b"value", base: int = 0) -> Path:
        path = self.path / partition
        path.mkdir()
        (path / f"{base:020}.log").write_bytes(b"".join(batch(each, value) for each in range(base // 5, batches)))
        return path


@pytest.fixture
def directories(tmp_path: Path) -> list[Directory]:
    """Directories of brokers 1 to 3, each with a replica of 50 records and a checkpoint of its high watermark."""
    created = [Directory(tmp_path / str(broker), broker) for broker in (1, 2, 3)]
    for each in created:
        each.replica("t-0")
        each.checkpoint("replication-offset-checkpoint", t_0=50)
    return created


def audit_directories(directories: list[Directory], **more: object) -> AuditReport:
    return run_audit(AuditOptions(log_dirs=tuple(str(each.path) for each in directories), **more))  # type: ignore[arg-type]


def difference_positions(report: AuditReport) -> list[tuple[str, int, int, int, Kind]]:
    return [(each.topic, each.partition, each.base_offset, each.broker, each.kind) for each in report.differences]


# --- directories ---


def test_directories_identify_their_broker(directories: list[Directory]) -> None:
    """Directories name their broker, and replicas are compared up to the checkpointed high watermark."""
    report = audit_directories(directories)
    assert (report.agrees, report.cluster_id, report.brokers, report.batches) == (True, "c", (1, 2, 3), 30)
    assert report.verdict == "the replicas of 1 partition agree below the high watermark"


def test_several_directories_of_one_broker(directories: list[Directory], tmp_path: Path) -> None:
    """A broker's replicas may be in any of its directories."""
    second = Directory(tmp_path / "1b", 1)
    second.replica("u-3", value=b"other")
    second.checkpoint("replication-offset-checkpoint", u_3=50)
    directories[1].replica("u-3")
    report = audit_directories([*directories, second])
    assert difference_positions(report) == [("u", 3, 0, 1, Kind.DIFFERENT), ("u", 3, 0, 2, Kind.DIFFERENT)] + [
        ("u", 3, 5 * number, broker, Kind.DIFFERENT) for number in range(1, 10) for broker in (1, 2)
    ]
    assert report.verdict == "20 differences, in 1 of 2 partitions"


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: (path / "meta.properties").unlink(), "--log-dirs BROKER="),
        (lambda path: Directory(path.parent / "else", 1, cluster="d"), "belong to several clusters"),
        (lambda path: (path / "replication-offset-checkpoint").write_text("nonsense"), "checkpoint"),
    ],
)
def test_invalid_directories(directories: list[Directory], damage: Callable[[Path], object], error: str) -> None:
    """The audit fails with an error that states the reason."""
    damage(directories[0].path)
    paths = [each for each in sorted(directories[0].path.parent.iterdir()) if each.is_dir()]
    with pytest.raises(StorageError, match=error):
        run_audit(AuditOptions(log_dirs=tuple(map(str, paths))))


def test_broker_id_of_a_directory(directories: list[Directory]) -> None:
    """If a directory contains a broker ID, it must match the given one."""
    with pytest.raises(StorageError, match="belongs to broker 1, not to 4"):
        run_audit(AuditOptions(log_dirs_of={4: (str(directories[0].path),)}))
    properties = directories[0].path / "meta.properties"
    properties.write_text("version=1\nnode.id=1\n")
    assert run_audit(AuditOptions(log_dirs_of={4: (str(directories[0].path),)})).brokers == (4,)
    properties.unlink()
    assert run_audit(AuditOptions(log_dirs_of={4: (str(directories[0].path),)})).brokers == (4,)


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere is not a directory"):
        run_audit(AuditOptions(log_dirs=(str(tmp_path / "nowhere"),)))


def test_no_high_watermark_checkpoint(directories: list[Directory]) -> None:
    """Without the checkpoint, nothing is compared, and the report says so."""
    for each in directories:
        (each.path / "replication-offset-checkpoint").unlink()
    report = audit_directories(directories)
    assert (report.agrees, report.is_empty) == (False, True)
    assert report.verdict == "nothing was compared"
    assert "t-0: no records between the log start offset" in report.notes[0]


def test_older_topic_with_the_same_name(directories: list[Directory]) -> None:
    """A replica with another topic ID is excluded with a note, because its records belong to another topic."""
    for each, topic_id in zip(
        directories, ("AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACA"), strict=True
    ):
        (each.path / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    report = audit_directories(directories)
    assert report.agrees
    assert len(report.partitions[0].coverages) == 2
    assert "another topic ID" in report.notes[0]


def test_compacted_ranges(directories: list[Directory]) -> None:
    """Missing batches are not reported in ranges that the cleaner's checkpoint or the user declares as compacted."""
    path = directories[1].path / "t-0" / f"{0:020}.log"
    path.write_bytes(b"".join(batch(number) for number in range(10) if number != 4))
    assert difference_positions(audit_directories(directories)) == [("t", 0, 20, 2, Kind.MISSING)]
    assert audit_directories(directories, compacted=frozenset({"t"})).agrees
    directories[2].checkpoint("cleaner-offset-checkpoint", t_0=25)
    report = audit_directories(directories)
    assert (report.agrees, report.partitions[0].compacted_count) == (True, 1)
    directories[2].checkpoint("cleaner-offset-checkpoint", t_0=20)
    assert audit_directories(directories).agrees  # without a clean shutdown, the broker may be cleaning
    (directories[2].path / ".kafka_cleanshutdown").write_text("")
    assert difference_positions(audit_directories(directories)) == [("t", 0, 20, 2, Kind.MISSING)]


def test_unreadable_epoch_checkpoint(directories: list[Directory]) -> None:
    """The replica is reported, and its batches are still compared."""
    (directories[1].path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    report = audit_directories(directories)
    assert difference_positions(report) == [("t", 0, 0, 2, Kind.DAMAGED)]
    assert [each.batches for each in report.partitions[0].coverages] == [10, 10, 10]


def test_large_partitions_are_split(directories: list[Directory], monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing end of a replica is reported once, however many slices it spans."""
    monkeypatch.setattr("kreplica.spark.pipelines.audit.plan.SLICE_BYTES", 200)
    path = directories[2].path / "t-0" / f"{0:020}.log"
    path.write_bytes(b"".join(batch(number) for number in range(4)))
    plan = make_plan(AuditOptions(log_dirs=tuple(str(each.path) for each in directories)))
    assert len(plan.slices) > 4
    assert [each.span.start for each in plan.slices][1:] == [each.span.end for each in plan.slices][:-1]
    report = audit_directories(directories)
    assert difference_positions(report) == [("t", 0, 20, 3, Kind.MISSING)]
    assert report.difference_count == 1
    assert [(each.batches, each.end) for each in report.partitions[0].coverages] == [(10, 50), (10, 50), (4, 20)]


def test_differences_are_compared_twice(directories: list[Directory], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only differences that two comparisons find are reported; after a moved log start, the comparison is repeated."""
    plan = make_plan(AuditOptions(log_dirs=tuple(str(each.path) for each in directories)))
    results: list[Comparison | None] = []

    def compare(*_: object) -> Comparison:
        found = results.pop(0)
        if found is None:
            raise LogStartMoved("moved")
        return found

    def comparison_with(*offsets: int) -> Comparison:
        found = Comparison(*T0, 0, 50)
        for offset in offsets:
            found.add(2, offset, Kind.DAMAGED, "damaged")
        return found

    monkeypatch.setattr(audit_module, "compare", compare)
    results[:] = [None, comparison_with(5), None, comparison_with(5, 10), comparison_with(10, 15)]
    found, *_ = compare_slice(plan.slices[0])
    assert ([each.base_offset for each in found.differences], found.difference_count) == ([10], 1)
    assert not results


# --- directories and cluster metadata ---


def cluster_facts(*in_sync: int, high_watermark: int | None = 50, partition: TopicPartition = T0) -> ClusterFacts:
    """Return metadata of one partition, which is assigned to brokers 1 to 4."""
    partition_facts = PartitionFacts((1, 2, 3, 4), frozenset(in_sync), UUID(int=7), 0, high_watermark)
    return ClusterFacts("c", {}, {partition: partition_facts}, frozenset(), {})


def audit_with_facts(directories: list[Directory], metadata: ClusterFacts) -> AuditReport:
    """Audit directories with the metadata of their cluster."""
    replicas = {
        broker: file_replicas(BrokerDirectories(broker, "c", (str(each.path),)))
        for broker, each in enumerate(directories, 1)
    }
    return run_plan(plan_for_files(replicas, "c", frozenset(), metadata))


def test_in_sync_replicas_must_be_complete(directories: list[Directory]) -> None:
    """A replica outside the ISR may lack records below its checkpointed high watermark, because it is catching up."""
    (directories[2].path / "t-0" / f"{0:020}.log").write_bytes(b"".join(batch(number) for number in range(6)))
    assert difference_positions(audit_with_facts(directories, cluster_facts(1, 2, 3))) == [
        ("t", 0, 30, 3, Kind.MISSING)
    ]
    report = audit_with_facts(directories, cluster_facts(1, 2))
    assert (report.agrees, [each.is_short for each in report.partitions[0].coverages]) == (True, [False, False, True])


def test_high_watermark_of_the_leader_is_used(directories: list[Directory]) -> None:
    """The leader's high watermark may be above the checkpoint or, after an unclean election, below it."""
    path = directories[2].path / "t-0" / f"{0:020}.log"
    path.write_bytes(b"".join(batch(number, b"other" if number == 9 else b"value") for number in range(10)))
    assert audit_with_facts(directories, cluster_facts(1, 2, 3, high_watermark=45)).agrees
    for each in directories:
        each.checkpoint("replication-offset-checkpoint", t_0=20)
    assert audit_directories(directories).agrees
    assert difference_positions(audit_with_facts(directories, cluster_facts(1, 2, 3))) == [
        ("t", 0, 45, 3, Kind.DIFFERENT)
    ]
    assert audit_with_facts(directories, cluster_facts(1, 2, 3, high_watermark=None)).partitions[0].high_watermark == 20


def test_missing_replica(directories: list[Directory]) -> None:
    """A missing replica is reported unless the partition is empty; brokers without a directory are noted."""
    (directories[1].path / "t-0").rename(directories[1].path / "elsewhere")
    report = audit_with_facts(directories, cluster_facts(1, 2, 3, 4))
    assert difference_positions(report) == [("t", 0, 0, 2, Kind.MISSING)]
    assert report.notes == ("broker 4: replicas not read: 1",)
    for each in (directories[0], directories[2]):
        (each.path / "t-0").rename(each.path / "elsewhere")
        (each.path / "replication-offset-checkpoint").unlink()
    assert audit_with_facts(directories, cluster_facts(1, 2, 3, high_watermark=0)).difference_count == 0


def test_replicas_unknown_to_the_cluster(directories: list[Directory]) -> None:
    """Deleted partitions and removed replicas are excluded with a note."""
    assert (
        "the cluster does not have this partition"
        in audit_with_facts(directories, cluster_facts(partition=TopicPartition("u", 0))).notes[-1]
    )
    metadata = cluster_facts(1, 2)
    partition_facts = metadata.partitions[T0]._replace(replicas=(1, 2))
    report = audit_with_facts(directories, replace(metadata, partitions={T0: partition_facts}))
    assert (report.agrees, len(report.partitions[0].coverages)) == (True, 2)
    assert "broker 3 no longer has a replica" in report.notes[0]


# --- work file ---


def comparison() -> Comparison:
    found = Comparison("t", 0, 0, 50, [Coverage(1, 0, 50, 10, 900, False)])
    found.add(1, 5, Kind.EPOCHS, "why")
    return found


def test_work_file(tmp_path: Path) -> None:
    """Finished slices are reused, a truncated line is ignored, and the file is deleted at the end."""
    path = tmp_path / "work"
    identity = AuditOptions(log_dirs=("/a",)).identity
    with WorkFile(path, identity) as work:
        work.add(comparison())
    with path.open("a") as file:
        file.write('{"topic": "u", "par')
    assert WorkFile(path, identity).read() == {T0: comparison()}
    with WorkFile(path, identity) as work:
        work.add(replace(comparison(), partition=1))
    assert sorted(WorkFile(path, identity).read()) == [T0, TopicPartition("t", 1)]
    work.remove()
    assert WorkFile(path, identity).read() == {}


@pytest.mark.parametrize("text", ["", "nonsense\n", '{"version": 1, "audit": {}}\n'])
def test_file_that_is_not_a_work_file(tmp_path: Path, text: str) -> None:
    """A file that is not a work file of this audit is refused and not changed."""
    path = tmp_path / "work"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a work file of this audit"), WorkFile(path, {"x": 1}):
        pass
    assert path.read_text() == text


def test_slices_are_grouped() -> None:
    """Large slices form their own groups, small ones are combined, and none is lost."""
    slices = [Slice(T0, (), Span(each, each + 1), size) for each, size in enumerate([1 << 30, 5, 6, 1 << 27, 7])]
    groups = group_slices(slices)
    assert sorted(each.span.start for group in groups for each in group) == [0, 1, 2, 3, 4]
    assert [len(group) for group in groups] == [1, 1, 3]


def test_missing_topic(directories: list[Directory]) -> None:
    with pytest.raises(ValueError, match="topics without a replica: missing"):
        audit_directories(directories, topics=frozenset({"t", "missing"}))


def test_read_errors_of_a_device(directories: list[Directory], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable segment is reported, and other segments are compared."""
    for each in directories:
        path = each.path / "t-0"
        (path / f"{30:020}.log").write_bytes(b"".join(batch(number) for number in range(6, 10)))
        (path / f"{0:020}.log").write_bytes(b"".join(batch(number) for number in range(6)))
    unreadable_path = str(directories[1].path / "t-0" / f"{0:020}.log")
    read_at = OsFile.read_at

    def fail_or_read(self: OsFile, position: int, size: int) -> bytes:
        if self.path == unreadable_path:
            raise OSError(5, "Input/output error")
        return read_at(self, position, size)

    monkeypatch.setattr(OsFile, "read_at", fail_or_read)
    report = audit_directories(directories)
    assert difference_positions(report) == [("t", 0, 0, 2, Kind.DAMAGED)]
    assert "Input/output error" in report.differences[0].detail
    assert [each.batches for each in report.partitions[0].coverages] == [10, 4, 10]


def test_topic_deleted_during_the_audit(directories: list[Directory]) -> None:
    """The deletion is noted, but is not a difference; remaining replicas are compared."""
    plan = make_plan(AuditOptions(log_dirs=tuple(str(each.path) for each in directories)))
    (directories[0].path / "t-0").rename(directories[0].path / "t-0.0a1b-delete")
    found, notes, is_done = compare_slice(plan.slices[0])
    assert ([each.broker for each in found.coverages], found.differences, is_done) == ([2, 3], [], True)
    assert "t-0 was deleted" in notes[0]
    for each in directories[1:]:
        (each.path / "t-0").rename(each.path / "t-0.0a1b-delete")
    found, notes, is_done = compare_slice(plan.slices[0])
    assert (found.coverages, len(notes), is_done) == ([], 3, True)


def test_slice_deleted_by_retention(directories: list[Directory]) -> None:
    """If retention deletes a slice's records, no difference is reported."""
    plan = make_plan(AuditOptions(log_dirs=tuple(str(each.path) for each in directories)))
    path = directories[1].path / "t-0"
    (path / f"{0:020}.log").rename(path / f"{0:020}.log.deleted")
    (path / f"{30:020}.log").write_bytes(b"".join(batch(number) for number in range(6, 10)))
    (slice_,) = plan.slices
    found, notes, is_done = compare_slice(slice_._replace(span=Span(0, 20)))
    assert (found.coverages, found.differences, notes, is_done) == ([], [], (), True)
    found, *_ = compare_slice(slice_)
    assert [(each.start, each.batches) for each in found.coverages] == [(30, 4)] * 3
