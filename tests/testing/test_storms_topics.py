"""Topics that are created and deleted during a run, and checks of their clients and leftovers."""

from __future__ import annotations

from random import Random

import pytest
from cluster_runs import run_with_timeline

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_removal
from kreplica.testing.anomalies import Kind, report
from kreplica.testing.anomalies.history import Poll
from kreplica.testing.cluster.state import assignment_of, state_of
from kreplica.testing.histories.record_history import History
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.clients.side_partition import LATE, SideHistory
from kreplica.testing.storms.expected_state import Expected, RequestResult
from kreplica.testing.storms.faults import partitions, topics
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.wire.records import Record

pytestmark = pytest.mark.usefixtures("logged_errors")

NAME = "side-1"
SETTINGS = {
    "segment.bytes": "2000",
    "min.insync.replicas": "2",
}


def create(run: ReplicatedRun, partitions: int = 1) -> None:
    """Create a topic, and wait until records have been committed to it."""
    topic = run.side_topics.topic(NAME)
    client = run.side_topics.administrator(Random(0))
    asked = client.create_topic(NAME, partitions, SETTINGS, replication_factor=3)
    expected = {topic.exists: True, **{each: SETTINGS.get(name) for name, each in topic.settings.items()}}
    assert run.cluster.run_until(run.side_topics.send(client, asked, expected)) is RequestResult.DONE
    run.cluster.run_until(lambda: all(partition.committed_end > 3 for partition in run.side_topics.current()))


def delete(run: ReplicatedRun) -> None:
    client = run.side_topics.administrator(Random(0))
    expected = {run.side_topics.topic(NAME).exists: False}
    sending = run.side_topics.send(client, client.delete_topic(NAME), expected)
    assert run.cluster.run_until(sending) is RequestResult.DONE


def test_a_topic_with_a_reused_name_is_empty() -> None:
    """A topic with a reused name has new clients that start at offset 0, and no data of the earlier topic."""
    with run_with_timeline(1) as run:
        create(run, 2)
        earlier = list(run.side_topics.current())
        delete(run)
        assert not run.side_topics.keys
        create(run)
        (now,) = run.side_topics.current()
        assert now.incarnation.topic_id not in {partition.incarnation.topic_id for partition in earlier}
        assert all(offset < 10 for offset in now.history.seen[0])
        run.converge()
        assert all(partition.committed_end > 3 for partition in earlier)


def test_a_partition_with_a_reused_number_is_empty() -> None:
    """A partition with a reused number has its own clients, and epochs above those of the removed partition."""
    with run_with_timeline(2) as run:
        create(run, 2)
        before = {partition.incarnation.key.partition: partition for partition in run.side_topics.current()}
        topic = run.side_topics.topic(NAME)
        topic.may_shrink = True
        client = run.cluster.brokers[1].program.client
        run.cluster.run_until(client.create(znodes.partitions_remove_path(NAME)))
        run.cluster.run_until(client.create(znodes.partitions_remove_path(NAME, 1), encode_removal(500)))
        run.cluster.run_until(lambda: len(topic.current) == 1)
        run.cluster.run_until(lambda: not assignment_of(run.cluster, NAME).removed[1].replicas)  # type: ignore[union-attr]
        administrator = run.side_topics.administrator(Random(0))
        asked = administrator.create_partitions(NAME, 2)
        assert run.cluster.run_until(run.side_topics.send(administrator, asked)) is RequestResult.DONE
        after = {partition.incarnation.key.partition: partition for partition in run.side_topics.current()}
        assert after[0] is before[0]
        assert after[1] is not before[1]
        assert after[1].incarnation.removed_epoch >= 0
        run.cluster.run_until(lambda: after[1].committed_end > 3)
        run.converge()


@pytest.mark.parametrize("left", ["a directory", "a topic", "settings"])
def test_leftovers_of_a_deleted_topic_are_found(left: str) -> None:
    """The run fails if files on a broker, or znodes, remain of a deleted topic."""
    with run_with_timeline(3) as run:
        create(run)
        delete(run)
        client = run.cluster.brokers[2].program.client
        if left == "a directory":
            run.machine(2).host.disk.make_directories(f"/data/logs/{NAME}-0.0123-delete")
        elif left == "a topic":
            administrator = run.side_topics.administrator(Random(0))
            run.cluster.run_until(administrator.create_topic(NAME, 1, SETTINGS, replication_factor=3))
        else:
            run.cluster.run_until(client.create(znodes.config_path("topics", NAME), b'{"version":1,"config":{}}'))
        with pytest.raises(AssertionError, match=r"has not deleted|exists: True|settings of the deleted"):
            run.converge()


def test_wrong_configurations_are_found() -> None:
    """The run fails if a configuration change was acknowledged but is not in effect."""
    with run_with_timeline(4) as run:
        create(run)
        run.side_topics.topic(NAME).settings["segment.bytes"].values = {"5000": None}
        with pytest.raises(AssertionError, match=r"segment\.bytes of side-1 is 2000"):
            run.converge()


def test_losses_of_a_trimmed_topic_are_found() -> None:
    """Only records below the highest log start offset of all replicas may be deleted before they are read."""
    with deferred_collection(), run_with_timeline(5) as run:
        create(run)
        run.cluster.run(5.0)
        (partition,) = run.side_topics.current()
        reads = partition.history.observations.reads
        first = next(read for read in reads if isinstance(read, Poll) and read.records)
        reads.remove(first)
        partition.trimmed = True
        with pytest.raises(AssertionError, match="lost write"):
            partition.check(caught_up=False)
        partition.committed.start_offset = first.records[-1][0] + 1
        partition.check(caught_up=False)


def test_the_highest_log_start_offset_survives_its_replica() -> None:
    """The highest log start offset is remembered even if the replica that had it is gone."""
    with deferred_collection(), run_with_timeline(6) as run:
        create(run)
        (partition,) = run.side_topics.current()
        assert partition.committed.start_offset == 0
        state = state_of(run.cluster, partition.incarnation.key)
        assert state is not None
        leader = run.machine(state.leader).program.partitions.get(partition.incarnation.key)
        leader.log.advance_log_start_offset(2)
        run.cluster.run_until(lambda: partition.committed.start_offset == 2)
        run.kill(state.leader)
        run.cluster.run(1.0)
        assert partition.committed.start_offset == 2


def test_expected_values_after_responses() -> None:
    """A confirmed change leaves one possible value; an unconfirmed one leaves several, as it may be applied later."""
    expected = Expected("a")
    expected.requested("b")
    assert list(expected.values) == ["a", "b"]
    expected.completed("b", RequestResult.DONE)
    assert list(expected.values) == ["b"]
    expected.requested("c")
    expected.completed("c", RequestResult.REJECTED)
    assert list(expected.values) == ["b"]
    expected.requested("d")
    expected.completed("d", RequestResult.UNKNOWN)
    expected.requested("e")
    expected.completed("e", RequestResult.DONE)
    assert list(expected.values) == ["b", "d", "e"], "d may still be applied"


def test_either_of_two_concurrent_requests_may_win() -> None:
    """After two concurrent changes, both values are possible until a later change is confirmed."""
    expected = Expected("a")
    expected.requested("b")
    expected.requested("c")
    expected.completed("b", RequestResult.DONE)
    expected.completed("c", RequestResult.DONE)
    assert list(expected.values) == ["a", "b", "c"]
    expected.requested("d")
    expected.completed("d", RequestResult.REJECTED)
    assert list(expected.values) == ["a", "b", "c"]
    expected.requested("d")
    expected.completed("d", RequestResult.DONE)
    assert list(expected.values) == ["d"]


def record(offset: int, value: bytes) -> Record:
    return Record(offset=offset, timestamp_ms=0, key=None, value=value, headers=())


def side_history(label: int, *, exists: bool = True, late: bytes = b"") -> SideHistory:
    return SideHistory(label, 0, lambda: 0.0, lambda: exists, lambda value: value == late)


def test_a_record_of_a_previous_topic_is_found() -> None:
    """A record of an earlier topic with the same name can only come from old files, so it is an unsent read."""
    history = side_history(1)
    own = history.next_value(0, 1)
    history.sending("producer", 0, [own])
    history.read(0, [record(0, own), record(1, b"0:0/5 ")])
    assert Kind.UNSENT_READ in report(history.observations).errors


def test_a_late_attempt_may_be_read() -> None:
    """A record that was in flight while the topic was replaced may be written to the new topic."""
    history = side_history(1, late=b"0:0/5 ")
    own = history.next_value(0, 1)
    history.sending("producer", 0, [own])
    history.read(0, [record(0, own), record(1, b"0:0/5 ")])
    assert not report(history.observations).errors
    assert [send.producer for send in history.observations.sends] == ["producer", LATE]


def test_acknowledgements_after_a_deletion_are_not_counted() -> None:
    """A record that is acknowledged after its topic's deletion was written to another topic of that name."""
    history = side_history(1, exists=False)
    value = history.next_value(0, 1)
    number = history.sending("producer", 0, [value])
    history.acknowledged(0, 7, [value], number)
    assert history.acked == History(1).acked


@pytest.mark.parametrize("operation", [topics.create, topics.delete, partitions.grow, topics.change_settings])
def test_an_operation_without_a_topic_creates_one(operation: topics.Operation) -> None:
    """An operation creates a topic if there is none, so that storms with few operations have topics too."""
    with run_with_timeline(5) as run:
        operation(run, Random(1))
        run.cluster.run_until(lambda: bool(run.side_topics.keys))
        run.converge()


def test_an_unacknowledged_deletion_may_be_undone() -> None:
    """A coordinator crash undoes a deletion that is not durable yet; the request then deletes the topic again."""
    with run_with_timeline(7) as run:
        create(run)
        client = run.side_topics.administrator(Random(0))
        topic = run.side_topics.topic(NAME)
        asked = run.side_topics.send(client, client.delete_topic(NAME), {topic.exists: False})
        run.cluster.run_until(lambda: not run.side_topics.keys)
        run.cluster.zookeeper.kill()
        run.cluster.run_until(run.cluster.zookeeper.start())
        assert assignment_of(run.cluster, NAME) is not None
        run.cluster.run_until(asked)
        run.cluster.run_until(lambda: assignment_of(run.cluster, NAME) is None)
        run.converge()
