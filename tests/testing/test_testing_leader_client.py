"""The client that follows the leader of a partition."""

from __future__ import annotations

from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.testing.storms.replicated_run import ReplicatedRun


def test_reading_continues_with_the_next_leader() -> None:
    """A client receives all records even if the leader dies while it reads."""
    run = ReplicatedRun(1, partitions=1)
    run.run_until_acknowledged(20)
    reader = run.cluster.leader_client(TOPIC, 0, name="reader")
    run.cluster.run_until(reader.connection())
    acknowledged = dict(run.history.acked[0])
    run.kill(run.leader())
    records = run.cluster.run_until(reader.read_all(TOPIC, 0))
    assert acknowledged.items() <= {record.offset: record.value for record in records}.items()
    run.converge()


def test_an_offset_request_is_retried_with_the_next_leader() -> None:
    """When a former leader responds with an error, the client looks up the current leader and retries."""
    run = ReplicatedRun(2, partitions=1)
    run.run_until_acknowledged(20)
    asker = run.cluster.leader_client(TOPIC, 0, name="reader")
    run.cluster.run_until(asker.connection())
    acknowledged = run.history.acked[0]
    run.kill(run.leader())
    assert run.cluster.run_until(asker.find_offset(TOPIC, 0, -1)) > max(acknowledged)
    run.converge()
