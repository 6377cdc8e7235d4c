"""Additional clients of a run: their results, contradictions between these, and fetches from followers."""

from __future__ import annotations

import pytest
from cluster_runs import run_with_timeline, traced_run

from kreplica.errors import KafkaError
from kreplica.testing.anomalies import Kind, report
from kreplica.testing.storms.clients.readers import RackAwareReader
from kreplica.testing.storms.clients.weak_producers import ACKS_1, EXPECTATIONS, NOT_IDEMPOTENT, WeakProducers
from kreplica.testing.storms.replicated_run import SAFE, ReplicatedRun

pytestmark = pytest.mark.usefixtures("logged_errors")


def run_with_racks(seed: int) -> ReplicatedRun:
    return traced_run(seed, racks=True)


def read_all_from(run: ReplicatedRun, rack: str, size_max: int = 300) -> RackAwareReader:
    """Read all acknowledged records of one partition in this rack, and return the reader."""
    reader = run.readers.start_reader(run.keys[0], rack=rack, size_max=size_max)
    run.cluster.run_until(lambda: reader.position >= run.history.ends(0)[0] > 0)
    run.cluster.run_until(reader.abandon())
    return reader


def test_a_reader_fetches_from_the_replica_in_its_rack() -> None:
    """The leader redirects a reader to the replica in the reader's rack, unless that is the leader itself."""
    with run_with_timeline(1, run_with_racks) as run:
        run.run_until_acknowledged(200)
        for broker, rack in run.racks.items():
            expected = {} if broker == run.leader(0) else {f"broker-{broker}": None}
            assert read_all_from(run, rack).preferred == expected
        run.converge()


def test_a_late_reader_reads_everything_in_small_fetches() -> None:
    """A reader without a rack reads from the leader; a limit of one byte returns one batch at a time (KIP-74)."""
    with run_with_timeline(2, run_with_racks) as run:
        run.run_until_acknowledged(100)
        assert not read_all_from(run, "", size_max=1).preferred
        assert len(run.history.seen[0]) >= run.history.ends(0)[0]
        run.converge()


def test_a_reader_leaves_a_dead_follower() -> None:
    """If the follower that a reader fetches from dies, the reader continues with another replica or the leader."""
    with run_with_timeline(3, run_with_racks) as run:
        run.run_until_acknowledged(200)
        near = run.in_sync_followers(0)[0]
        reader = run.readers.start_reader(run.keys[0], rack=run.racks[near], size_max=300)
        run.cluster.run_until(lambda: bool(reader.preferred) and reader.position > 0)
        run.kill(near)
        run.cluster.run_until(lambda: reader.position >= run.history.ends(0)[0], timeout_s=60)
        run.cluster.run_until(reader.abandon())
        run.converge()


def test_a_client_does_not_go_back_to_an_earlier_leader() -> None:
    """A client rejects metadata with an older leader epoch than it has seen, and queries the next broker."""
    with run_with_timeline(3) as run:
        client = run.cluster.leader_client(*run.keys[0], name="metadata-client")
        run.cluster.run_until(client.connection())
        earlier, client.leader_epoch = client.leader_epoch, client.leader_epoch + 1
        run.cluster.run_until(client.close())
        with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE"):
            run.cluster.run_until(client.connection())
        client.leader_epoch = earlier
        run.cluster.run_until(client.connection())
        run.cluster.run_until(client.close())
        run.converge()


def test_a_decreasing_end_offset_is_found() -> None:
    """A run fails at its end if the high watermark decreased."""
    with run_with_timeline(4) as run:
        watcher = run.readers.watch_high_watermark(run.keys[0])
        run.run_until_acknowledged(50)
        run.cluster.run(1.0)
        watcher.seen = (watcher.seen[0], watcher.seen[1] + 10_000)
        run.cluster.run(1.0)
        with pytest.raises(AssertionError, match=r"high watermark decreased from 1\d{4} \(leader epoch 0\)"):
            run.cluster.run_until(watcher.abandon())
        run.converge()


def test_records_with_acks_1_may_be_lost() -> None:
    """A record acknowledged with acks=1 may be truncated by the next leader, which is an error with acks=all."""
    with run_with_timeline(5) as run:
        weak = WeakProducers(run, 3, SAFE)
        run.companions.append(weak)
        key, history = weak.keys[ACKS_1], weak.histories[ACKS_1]
        run.cluster.run_until(lambda: len(history.acked[ACKS_1]) > 5)
        leader = run.cluster.leader_of(*key)
        for broker in run.cluster.brokers:
            if broker != leader:
                run.network.cut(f"broker-{broker}", f"broker-{leader}", one_way=False)
        acknowledged = history.acked_count
        run.cluster.run_until(lambda: history.acked_count > acknowledged)
        run.kill(leader)
        run.network.heal()
        run.cluster.run_until(lambda: run.cluster.leader_of(*key) not in (leader, -1))
        run.start(leader)
        run.converge()
        found = report(history.observations, EXPECTATIONS[NOT_IDEMPOTENT])
        assert Kind.LOST_WRITE in found.errors or Kind.INCONSISTENT_ACKNOWLEDGEMENT in found.errors


def test_convergence_waits_for_the_last_record_with_acks_1() -> None:
    """The last record may be acknowledged before a follower has it: the run waits until consumers can read it."""
    with run_with_timeline(5) as run:
        weak = WeakProducers(run, 3, SAFE)
        history = weak.histories[ACKS_1]
        run.cluster.run_until(lambda: len(history.acked[ACKS_1]) > 5)
        leader = run.cluster.leader_of(*weak.keys[ACKS_1])
        for broker in run.cluster.brokers:
            if broker != leader:
                run.network.cut(f"broker-{broker}", f"broker-{leader}", one_way=False)
        acknowledged = history.acked_count
        run.cluster.run_until(lambda: history.acked_count > acknowledged)
        run.network.heal()
        weak.converge()
        run.converge()


def test_without_idempotence_a_batch_may_be_duplicated() -> None:
    """Without idempotence, a batch whose acknowledgement is lost is sent and written again."""
    with run_with_timeline(6) as run:
        weak = WeakProducers(run, 3, SAFE)
        run.companions.append(weak)
        history = weak.histories[NOT_IDEMPOTENT]
        for _ in range(5):
            acknowledged = history.acked_count
            run.cluster.run_until(lambda before=acknowledged: history.acked_count > before + 3)
            sent = history.sent[NOT_IDEMPOTENT]
            leader = f"broker-{run.cluster.leader_of(*weak.keys[NOT_IDEMPOTENT])}"
            run.network.cut(leader, "weak-producers", one_way=True)
            run.cluster.run_until(lambda before=sent: history.sent[NOT_IDEMPOTENT] > before)
            run.cluster.run(0.5)
            run.network.drop_connections("weak-producers", leader)
            run.network.heal()
        run.converge()
        assert Kind.DUPLICATE in report(history.observations, EXPECTATIONS[NOT_IDEMPOTENT]).counts
