"""Three replicas under load and one fault: no acknowledged record is lost, and the cluster recovers by itself."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from cluster_runs import run_with_timeline, seeds, traced_run

from kreplica.errors import ErrorCode
from kreplica.testing.cluster.state import state_of
from kreplica.testing.simulator.disk import CAPACITY_BYTES
from kreplica.testing.storms.replicated_run import SAFE, ReplicatedRun
from kreplica.zookeeper import ConnectionLoss
from tests.support.mutations.scenarios.scene import TOGETHER, LosesAll

pytestmark = pytest.mark.usefixtures("logged_errors")

SYNCED = {**SAFE, "flush.messages": "1"}
SESSION_S = 6.0
"""The session timeout of the simulated brokers; the coordinator checks for expired sessions once per second."""

LAG_S = 3.0
CHECKPOINT_S = 5.0
"""Interval of high watermark checkpoints."""


def synced_run(seed: int) -> ReplicatedRun:
    return traced_run(seed, configs=SYNCED)


class TestKilled:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_leader(self, seed: int) -> None:
        """After the leader is killed, another replica leads within a few seconds of its session's expiry."""
        with run_with_timeline(seed) as run:
            for _ in range(3):
                run.run_until_acknowledged(30)
                leader = run.leader()
                run.kill(leader)
                run.cluster.run_until(lambda old=leader: run.leader() not in (old, -1), timeout_s=SESSION_S + 3)
                run.run_until_acknowledged(10, timeout_s=15)
                run.start(leader)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_follower(self, seed: int) -> None:
        """While a follower is down, the other replicas acknowledge records; after its restart it rejoins the ISR."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            follower = run.in_sync_followers()[0]
            run.kill(follower)
            run.run_until_acknowledged(100, timeout_s=30)
            assert follower not in run.in_sync_followers()
            run.start(follower)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_controller(self, seed: int) -> None:
        """After the controller is killed, another broker becomes controller and elects leaders for its partitions."""
        with run_with_timeline(seed) as run:
            for _ in range(2):
                run.run_until_acknowledged(20)
                controller = run.cluster.controller()
                assert controller is not None
                run.kill(controller)
                run.cluster.run_until(lambda old=controller: run.cluster.controller() not in (old, None), timeout_s=20)
                run.cluster.run(3)
                assert all(run.leader(key.partition) not in (controller, -1) for key in run.keys)
                run.start(controller)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2, 3]))
    def test_controller_during_a_failover(self, seed: int) -> None:
        """The leader dies, then the controller while it moves leadership: the next controller completes the move."""
        with run_with_timeline(seed) as run:
            for _ in range(3):
                run.run_until_acknowledged(20)
                controller = run.cluster.controller()
                others = [broker for broker in run.cluster.brokers if broker != controller]
                assert controller is not None
                leader = run.random.choice([other for other in others if other == run.leader()] or others)
                run.stop(leader) if run.random.random() < 0.3 else run.kill(leader)
                run.cluster.run(run.random.choice([0.0, SESSION_S - 0.5]))
                run.steps(run.random.randrange(800))
                run.kill(controller)
                run.start(leader, controller)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2, 3]))
    def test_and_restarted_before_its_session_expires(self, seed: int) -> None:
        """A broker restarts before its session expires; commands to and fetches from its old process are rejected."""
        with run_with_timeline(seed) as run:
            for broker in (1, 2, 3, run.leader()):
                run.run_until_acknowledged(20)
                run.kill(broker)
                run.start(broker)
                run.steps(run.random.randrange(200))
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_all_at_once(self, seed: int) -> None:
        """After all brokers are killed, the cluster recovers without help, whatever the order in which they start."""
        with run_with_timeline(seed) as run:
            for _ in range(2):
                run.run_until_acknowledged(40)
                for broker in run.cluster.brokers:
                    run.kill(broker)
                run.cluster.run(run.random.choice([0.1, 20.0]))
                order = run.random.sample(sorted(run.cluster.brokers), 3)
                for broker in order:
                    run.start(broker)
                    run.cluster.run(run.random.uniform(0.0, 5.0))
                run.settle()
            run.converge()


class TestStopped:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_one_after_the_other(self, seed: int) -> None:
        """In a rolling restart, each broker first hands over leadership, so that no client waits for session expiry."""
        with run_with_timeline(seed) as run:
            for broker in run.cluster.brokers:
                run.run_until_acknowledged(20)
                run.stop(broker)
                assert all(run.leader(key.partition) not in (broker, -1) for key in run.keys)
                run.run_until_acknowledged(20, timeout_s=SESSION_S / 2)
                run.start(broker)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_all(self, seed: int) -> None:
        """All brokers stop one after the other and start again."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(40)
            for broker in run.cluster.brokers:
                run.stop(broker)
            run.start(*run.cluster.brokers)
            run.converge()


class TestPowerLoss:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_of_any_broker(self, seed: int) -> None:
        """With default settings, other replicas have the records that one broker loses, so consumers see no loss."""
        with run_with_timeline(seed) as run:
            for _ in range(4):
                run.run_until_acknowledged(30)
                broker = run.random.choice([run.leader(), *run.in_sync_followers()])
                run.lose_power(broker)
                run.cluster.run(run.random.choice([0.0, 2.0, 15.0]))
                run.start(broker)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_of_all_at_once(self, seed: int) -> None:
        """With flush.messages=1, acknowledged records are synced on all in-sync replicas, so nothing is lost."""
        with run_with_timeline(seed, synced_run) as run:
            for _ in range(3):
                run.run_until_acknowledged(30)
                for broker in run.cluster.brokers:
                    run.lose_power(broker)
                run.start(*run.cluster.brokers)
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_truncated_records_that_reappear_are_not_committed(self, seed: int) -> None:
        """A former leader truncates its uncommitted records, fetches the committed ones and loses power.

        The truncated records may be back on the disk, below the high watermark of the records that replaced them.
        """
        with run_with_timeline(seed, lambda s: traced_run(s, partitions=1, configs=TOGETHER)) as run:
            run.run_until_acknowledged(30)
            past = run.leader()
            disk = run.machine(past).host.disk
            for other in run.in_sync_followers():
                run.network.cut(f"broker-{past}", f"broker-{other}")
            run.network.cut(f"broker-{past}", "coordinator")
            run.cluster.run(1.0)
            disk.write_back()  # the kernel has written the leader's uncommitted records without a sync
            run.cluster.run_until(lambda: run.leader() not in (past, -1), timeout_s=SESSION_S + 3)
            run.network.heal()
            run.run_until_acknowledged(100)
            run.settle()
            run.cluster.run(CHECKPOINT_S + 1)
            run.lose_power(past, LosesAll(0))
            run.launch(past)
            run.cluster.run(2.0)
            run.converge()


class TestDisconnected:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_leader_from_zookeeper(self, seed: int) -> None:
        """A leader that clients can still reach stops acknowledging before its session expires."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            leader = run.leader()
            run.network.cut(f"broker-{leader}", "coordinator")
            run.cluster.run_until(lambda: run.leader() not in (leader, -1), timeout_s=SESSION_S + 3)
            partition = run.machine(leader).program.partitions.get(run.keys[0])
            assert partition is not None
            high_watermark = partition.high_watermark
            run.run_until_acknowledged(30, timeout_s=30)
            run.cluster.run(5)
            assert not partition.is_leader or partition.high_watermark == high_watermark
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_follower_from_the_leader(self, seed: int) -> None:
        """A follower that cannot fetch leaves the ISR after the lag limit, and rejoins when it is reconnected."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            leader, follower = run.leader(), run.in_sync_followers()[0]
            run.network.cut(f"broker-{leader}", f"broker-{follower}")
            run.cluster.run(LAG_S / 3)
            assert follower in run.in_sync_followers()
            run.cluster.run_until(lambda: follower not in run.in_sync_followers(), timeout_s=3 * LAG_S)
            run.run_until_acknowledged(50, timeout_s=30)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_both_followers_from_the_leader(self, seed: int) -> None:
        """A leader that is alone in the ISR commits nothing; when it dies, a follower leads, and nothing is lost."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            leader = run.leader()
            for follower in run.in_sync_followers():
                run.network.cut(f"broker-{leader}", f"broker-{follower}")
            run.cluster.run_until(lambda: run.in_sync_followers() == [], timeout_s=3 * LAG_S)
            before = run.history.ends(0)[0]
            run.cluster.run(10)
            assert run.history.ends(0)[0] == before
            if seed % 2:
                run.lose_power(leader)
                run.cluster.run_until(lambda: run.leader() not in (leader, -1), timeout_s=SESSION_S + 3)
                run.run_until_acknowledged(20, timeout_s=30)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_settings_of_a_new_topic(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """A broker that cannot read a new topic's settings becomes a replica when the controller retries."""
        with run_with_timeline(seed) as run:
            broker = next(number for number in run.cluster.brokers if number != run.cluster.controller())
            settings = run.machine(broker).program.dynamic_settings
            learn, failures = settings.read_topics, [ConnectionLoss(), ConnectionLoss()]

            async def fails_twice(topics: Sequence[str]) -> None:
                if failures:
                    raise failures.pop()
                await learn(topics)

            monkeypatch.setattr(settings, "read_topics", fails_twice)
            client = run.cluster.client()
            run.cluster.run_until(client.create_topic("late", 3, replication_factor=3))
            run.cluster.wait_in_sync("late", range(3), timeout_s=20)
            assert failures == []
            run.cluster.run_until(client.close())
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_one_way(self, seed: int) -> None:
        """The cluster recovers when a link between leader and follower has lost one direction."""
        with run_with_timeline(seed) as run:
            for a, b in ((run.leader(), run.in_sync_followers()[0]), (run.in_sync_followers()[0], run.leader())):
                run.run_until_acknowledged(20)
                run.network.cut(f"broker-{a}", f"broker-{b}", one_way=True)
                run.cluster.run(10)
                run.network.heal()
                run.settle()
            run.converge()


class TestSessions:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    @pytest.mark.parametrize("whose", ["leader", "follower", "controller"])
    def test_expired_while_the_broker_lives(self, whose: str, seed: int) -> None:
        """A broker whose session expires registers again, with a new broker epoch."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            follower = run.in_sync_followers()[0]
            chosen = {"leader": run.leader(), "follower": follower, "controller": run.cluster.controller()}
            broker = chosen[whose]
            assert broker is not None
            before = run.machine(broker).program.fence.broker_epoch
            run.note(f"the session of broker {broker} expires")
            run.cluster.expire_session(broker)
            run.cluster.run_until(lambda: run.machine(broker).program.fence.broker_epoch > before, timeout_s=30)
            run.run_until_acknowledged(20, timeout_s=60)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_leader_paused(self, seed: int) -> None:
        """A leader that was paused for longer than its session timeout resumes as a follower."""
        with run_with_timeline(seed) as run:
            for _ in range(2):
                run.run_until_acknowledged(20)
                leader = run.leader()
                run.note(f"broker {leader} pauses")
                run.machine(leader).host.pause()
                run.run_until_acknowledged(20, timeout_s=60)
                run.machine(leader).host.resume()
                run.settle()
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1]))
    def test_a_new_session_does_not_restore_leadership(self, seed: int) -> None:
        """A leader whose session expired leads again only after a command from the controller, not on reconnection."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            leader = run.leader()
            program = run.machine(leader).program
            partition, epoch = program.partitions.get(run.keys[0]), program.fence.broker_epoch
            session_id = program.client.session_id
            run.machine(leader).host.pause()
            run.cluster.run_until(lambda: run.leader() != leader, timeout_s=SESSION_S + 3)
            run.machine(leader).host.resume()
            run.cluster.run_until(lambda: program.client.session_id not in (0, session_id))
            while program.fence.broker_epoch == epoch:
                assert partition is not None
                assert not partition.is_leader
                assert program.fence.rejection(1000, epoch) is ErrorCode.STALE_BROKER_EPOCH
                run.steps(1)
            run.converge()

    @pytest.mark.parametrize("seed", seeds([1, 2]))
    def test_coordinator_restarts(self, seed: int) -> None:
        """Records are acknowledged and leaders do not change while the coordinator restarts."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            state = state_of(run.cluster, run.keys[0])
            run.cluster.zookeeper.power_loss() if seed % 2 else run.cluster.zookeeper.kill()
            run.cluster.run(1)
            run.cluster.run_until(run.cluster.zookeeper.start())
            run.run_until_acknowledged(50, timeout_s=30)
            run.cluster.run(SESSION_S)
            assert state_of(run.cluster, run.keys[0]) == state
            run.converge()


class TestHalfOpen:
    def test_a_follower_that_waits_on_a_half_open_connection(self) -> None:
        """The follower leaves the ISR after the lag limit, reconnects and catches up."""
        with run_with_timeline(1, lambda s: traced_run(s, partitions=1)) as run:
            run.run_until_acknowledged(20)
            leader, follower = run.leader(), run.in_sync_followers()[0]
            run.network.drop_connections(f"broker-{leader}", f"broker-{follower}", one_way=True)
            run.cluster.run(0.5)
            for producer in run.producers:
                run.cluster.run_until(producer.finish(), timeout_s=60.0)
            run.cluster.wait_log_end_offsets(run.keys[0], run.history.sent[0])
            run.converge()


class TestSlowLinks:
    @pytest.mark.parametrize("seed", seeds([1]))
    def test_between_brokers(self, seed: int) -> None:
        """Slow links between replicas delay acknowledgements, but no replica leaves the ISR."""
        with run_with_timeline(seed) as run:
            leader = run.leader()
            for follower in run.in_sync_followers():
                run.network.slow(f"broker-{leader}", f"broker-{follower}", (0.05, 0.2), bytes_per_s=100_000)
            run.run_until_acknowledged(100, timeout_s=120)
            assert len(run.in_sync_followers()) == 2
            run.converge()


class TestDisks:
    @pytest.mark.parametrize("seed", seeds([1, 2]))
    @pytest.mark.parametrize("whose", ["leader", "follower"])
    def test_sync_errors(self, whose: str, seed: int, logged_errors: list[str]) -> None:
        """A broker whose disk cannot sync leaves the ISR; after repair and a restart it rejoins."""
        with run_with_timeline(seed, synced_run) as run:
            run.run_until_acknowledged(20)
            broker = run.leader() if whose == "leader" else run.in_sync_followers()[0]
            run.note(f"the disk of broker {broker} cannot sync")
            run.machine(broker).host.disk.fail("sync", "/data/logs/*", errno.EIO)
            run.run_until_acknowledged(60, timeout_s=60)
            assert run.leader() != broker
            assert broker not in run.in_sync_followers()
            run.kill(broker)
            run.machine(broker).host.disk.clear_faults()
            run.start(broker)
            run.converge()
        assert logged_errors
        logged_errors.clear()

    @pytest.mark.parametrize("seed", seeds([1]))
    @pytest.mark.parametrize("whose", ["leader", "follower"])
    def test_full(self, whose: str, seed: int, logged_errors: list[str]) -> None:
        """A follower with a full disk falls behind, and a leader rejects records; both resume once there is space."""
        with run_with_timeline(seed) as run:
            run.run_until_acknowledged(20)
            broker = run.leader() if whose == "leader" else run.in_sync_followers()[0]
            disk = run.machine(broker).host.disk
            total, free = disk.usage("/data")
            run.note(f"the disk of broker {broker} is full")
            disk.capacity_bytes = total - free
            run.cluster.run(20)
            disk.capacity_bytes = CAPACITY_BYTES
            run.converge()
        logged_errors.clear()
