"""The client of whoever leads a partition."""

from __future__ import annotations

from kreplica.testing.storms.replicated_run import TOPIC, ReplicatedRun


def test_reading_all_goes_on_with_the_next_leader() -> None:
    """Who reads everything just when the leader dies gets everything, from the one that follows it."""
    run = ReplicatedRun(1, partitions=1)
    run.acknowledge(20)
    reader = run.cluster.leader_client(TOPIC, 0, name="reader")
    run.cluster.run_until(reader.connection())
    told = dict(run.history.acked[0])
    run.kill(run.leader())
    records = run.cluster.run_until(reader.read_all(TOPIC, 0))
    assert told.items() <= {record.offset: record.value for record in records}.items()
    run.converge()


def test_an_offset_is_asked_for_again_of_the_next_leader() -> None:
    """A leader that does not lead any more answers so, and whoever asks looks who does."""
    run = ReplicatedRun(2, partitions=1)
    run.acknowledge(20)
    asker = run.cluster.leader_client(TOPIC, 0, name="reader")
    run.cluster.run_until(asker.connection())
    told = run.history.acked[0]
    run.kill(run.leader())
    assert run.cluster.run_until(asker.find_offset(TOPIC, 0, -1)) > max(told)
    run.converge()
