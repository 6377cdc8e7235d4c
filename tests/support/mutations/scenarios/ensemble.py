"""Brokers whose ZooKeeper server lags behind the other servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from zope.interface import provider

from kreplica.membership.stray_logs import find_strays
from kreplica.model import TopicPartition
from kreplica.security.acls.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.ensemble.machines import EnsembleMachines
from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.zookeeper import SessionState
from tests.support.mutations.guard import Guard, Place, without
from tests.support.mutations.scenarios.scene import (
    CONTROLLER,
    FOLLOWER,
    LAG_S,
    LEADER,
    OTHER,
    REPLICAS,
    cut,
    heal,
    isr,
    leave,
    name,
    partition_on,
    pause_producer,
    resume_producer,
    scene,
)

NEW_TOPIC = "fresh"
EVERY_ACL = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, Permission.ANY)


@contextmanager
def lagging_scene(
    seed: int, broker: int, *overrides: str, first: int = LEADER
) -> Iterator[tuple[ReplicatedRun, int]]:
    """Prepare a cluster in which one broker uses a lagging ZooKeeper server, and the others use one without lag.

    :param overrides: settings of the brokers.
    :param first: the preferred replica.
    :return: the run, and the ZooKeeper server of the lagging broker.
    """
    with scene(seed, overrides=overrides, first=first, ensemble=EnsembleOptions(lag_s=0.001)) as run:
        machines = machines_of(run)
        current, lagging = (each for each in machines.hosts if each != leader_of(run))
        for other in run.cluster.brokers:
            connect(run, other, lagging if other == broker else current)
        yield run, lagging


def machines_of(run: ReplicatedRun) -> EnsembleMachines:
    assert run.cluster.ensemble is not None
    return run.cluster.ensemble


def leader_of(run: ReplicatedRun) -> int:
    """Return the server that leads the ensemble."""
    term = machines_of(run).ensemble.term
    assert term is not None
    return term.number


def connect(run: ReplicatedRun, broker: int, server: int) -> None:
    """Move a broker's session to a ZooKeeper server."""
    machines = machines_of(run)
    client = run.machine(broker).program.client

    def connected() -> int | None:
        return machines.server_of_session(client.session_id)

    while (current := connected()) != server:
        if current is not None:
            machines.server(current).disconnect_session(client.session_id)
        run.cluster.run_until(lambda: connected() is None)
        run.cluster.run_until(lambda: connected() is not None)


def freeze(run: ReplicatedRun, server: int) -> None:
    run.note(f"ZooKeeper server {server} applies nothing")
    machines_of(run).ensemble.set_frozen(server, True)


def thaw(run: ReplicatedRun, server: int) -> None:
    run.note(f"ZooKeeper server {server} catches up")
    machines_of(run).ensemble.set_frozen(server, False)


def topic_created_on_other_servers(seed: int) -> None:
    """A broker becomes leader of a new topic whose settings its ZooKeeper server does not have yet."""
    with lagging_scene(seed, LEADER) as (run, lagging):
        freeze(run, lagging)
        admin = run.cluster.client(broker=CONTROLLER)
        configs = {"min.insync.replicas": "2", "segment.bytes": "3000"}
        assignment = [(LEADER, FOLLOWER, OTHER)]
        created = Deferred.fromCoroutine(admin.create_topic(NEW_TOPIC, configs=configs, assignment=assignment))
        run.cluster.run(2.0)
        thaw(run, lagging)
        run.cluster.run_until(created)
        run.cluster.run_until(admin.close())
        run.cluster.wait_in_sync(NEW_TOPIC, [0])
        for broker in (LEADER, FOLLOWER, OTHER):
            settings = run.machine(broker).program.dynamic_settings.partition_settings(NEW_TOPIC)
            used = (settings.min_insync_replicas, settings.log.segment_bytes)
            assert used == (2, 3000), f"broker {broker} uses the settings {used} for a topic with (2, 3000)"
        run.converge()


def token_created_on_other_servers(seed: int) -> None:
    """A client uses a delegation token on a broker whose ZooKeeper server does not have it yet."""
    with lagging_scene(seed, LEADER, "delegation.token.secret.key=secret") as (run, lagging):
        created_by, used_at = (run.machine(broker).program.watches.tokens for broker in (CONTROLLER, LEADER))
        assert created_by is not None
        assert used_at is not None
        freeze(run, lagging)
        created = Deferred.fromCoroutine(created_by.create("User:alice", "User:alice", (), -1))
        token, _ = run.cluster.run_until(created)
        caught_up = Deferred.fromCoroutine(used_at.catch_up())
        run.cluster.run(1.0)
        is_known = used_at.cache.find(token.token_id) is not None
        assert caught_up.called is is_known, f"broker {LEADER} does not know a token that broker {CONTROLLER} created"
        thaw(run, lagging)
        run.cluster.run_until(caught_up)
        assert used_at.cache.find(token.token_id) is not None
        run.converge()


def acl_created_on_other_servers(seed: int) -> None:
    """An ACL is selected for deletion on a broker whose ZooKeeper server does not have it yet."""
    settings = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS")
    with lagging_scene(seed, LEADER, *settings) as (run, lagging):
        created_by, deleted_at = (run.machine(broker).program.watches.acls for broker in (CONTROLLER, LEADER))
        assert created_by is not None
        assert deleted_at is not None
        freeze(run, lagging)
        denial = Acl("User:alice", "*", AclOperation.READ, Permission.DENY)
        resource = ResourcePattern(ResourceType.TOPIC, "orders")
        run.cluster.run_until(Deferred.fromCoroutine(created_by.add(resource, [denial])))
        selected = Deferred.fromCoroutine(deleted_at.select(EVERY_ACL))
        run.cluster.run(1.0)
        assert not selected.called, f"broker {LEADER} does not find an ACL that broker {CONTROLLER} created"
        thaw(run, lagging)
        assert (resource, denial) in run.cluster.run_until(selected)
        run.converge()


def lost_response_to_isr_expansion(seed: int) -> None:
    """The response to an ISR expansion is lost, and the leader reads the state from a server that lacks the write."""
    with lagging_scene(seed, LEADER, "zookeeper.session.timeout.ms=18000") as (run, lagging):
        machines = machines_of(run)
        leave(run, OTHER)
        pause_producer(run)
        run.cluster.run(1.0)
        (current,) = (each for each in machines.hosts if each not in (lagging, leader_of(run)))
        client, led = run.machine(LEADER).program.client, partition_on(run, LEADER).leader_state
        assert led is not None
        heal(run, LEADER, OTHER)
        run.cluster.run_until(lambda: led.proposed is not None)
        freeze(run, current)
        for server in (current, leader_of(run)):
            run.network.cut(name(LEADER), machines.hosts[server].name)
        run.cluster.run_until(lambda: OTHER in isr(run))
        run.note("the leader's ZooKeeper server dies before it has sent the response")
        machines.kill_server(lagging)
        cut(run, LEADER, OTHER)
        resume_producer(run)
        run.cluster.run(LAG_S + 0.5)
        run.note(f"the leader reaches ZooKeeper server {current}")
        run.network.heal(name(LEADER), machines.hosts[current].name)
        run.cluster.run_until(lambda: client.state is SessionState.CONNECTED)
        run.cluster.run(1.0)
        thaw(run, current)
        run.network.heal()
        run.converge()


def command_of_unknown_controller(seed: int) -> None:
    """A controller is elected, and sends a command to a broker whose ZooKeeper server lacks the election."""
    with lagging_scene(seed, LEADER) as (run, lagging):
        freeze(run, lagging)
        with log_of("rejected") as rejected:
            run.cluster.expire_session(CONTROLLER)
            run.cluster.run_until(lambda: run.cluster.controller() in (FOLLOWER, OTHER))
            run.cluster.run(1.0)
            thaw(run, lagging)
            run.settle()
        assert not rejected, f"a command of the elected controller was rejected: {rejected[0]}"
        run.converge()


def fetch_of_newly_registered_follower(seed: int) -> None:
    """A follower restarts and fetches from a leader whose ZooKeeper server lacks the follower's registration."""
    with lagging_scene(seed, LEADER) as (run, lagging), log_of("rejected a fetch") as rejected:
        run.cluster.expire_session(FOLLOWER)
        run.kill(FOLLOWER)
        run.cluster.run(1.0)
        freeze(run, lagging)
        run.network.cut(name(FOLLOWER), machines_of(run).hosts[lagging].name)
        run.launch(FOLLOWER)
        run.cluster.run_until(lambda: run.serves(FOLLOWER))
        run.cluster.run(1.0)
        run.network.heal()
        thaw(run, lagging)
        run.settle()
        assert not rejected, f"a fetch of a registered follower was rejected: {rejected[0]}"
        run.converge()


def lost_response_to_election(seed: int) -> None:
    """The response to an election is lost, and the controller reads the states from a server that lacks the write."""
    _lose_response_to_election(seed)


def term_continues_after_lost_connections(seed: int) -> None:
    """The response to an election is lost after too many lost connections; the controller reads everything again."""
    with without(Guard("", (Place("kreplica.controller.effects.resumption:LOSSES_MAX", 1),), lambda _: None, "")):
        _lose_response_to_election(seed)


def _lose_response_to_election(seed: int) -> None:
    with lagging_scene(seed, CONTROLLER, "zookeeper.session.timeout.ms=18000", first=FOLLOWER) as (run, lagging):
        machines = machines_of(run)
        (current,) = (each for each in machines.hosts if each not in (lagging, leader_of(run)))
        client = run.machine(CONTROLLER).program.client
        freeze(run, current)
        run.network.cut(name(CONTROLLER), machines.hosts[leader_of(run)].name)
        admin = run.cluster.client(broker=CONTROLLER)
        Deferred.fromCoroutine(admin.elect_preferred(TOPIC, 0)).addErrback(lambda _: None)
        run.cluster.run_until(lambda: run.leader() == FOLLOWER)
        run.note("the controller's ZooKeeper server dies before it has sent the response")
        machines.kill_server(lagging)
        run.cluster.run_until(lambda: client.state is SessionState.SUSPENDED)
        run.cluster.run_until(lambda: client.state is SessionState.CONNECTED)
        run.cluster.run(3.0)
        thaw(run, current)
        run.network.heal()
        run.cluster.run(1.0)
        leads = [broker for broker in REPLICAS if partition_on(run, broker).is_leader]
        assert leads == [FOLLOWER], f"broker {FOLLOWER} was elected, but the brokers {leads} lead"
        run.cluster.run_until(admin.close())
        run.converge()


def stray_search_without_newest_topic(seed: int) -> None:
    """A broker searches for stray logs, but its ZooKeeper server does not have the topic of one log yet."""
    with lagging_scene(seed, OTHER) as (run, lagging):
        freeze(run, lagging)
        cut(run, CONTROLLER, OTHER)  # the sync of a command would delay the search, too
        admin = run.cluster.client(broker=CONTROLLER)
        created = Deferred.fromCoroutine(admin.create_topic(NEW_TOPIC, assignment=[(LEADER, FOLLOWER, OTHER)]))
        run.cluster.run(1.0)
        broker = run.machine(OTHER).program
        logs = {TopicPartition(NEW_TOPIC, 0): None}
        search = Deferred.fromCoroutine(find_strays(broker.client, logs, OTHER, broker.fence.broker_epoch))
        run.cluster.run(1.0)
        thaw(run, lagging)
        strays = run.cluster.run_until(search)
        assert not strays, f"an assigned log would be deleted: {strays}"
        heal(run, CONTROLLER, OTHER)
        run.cluster.run_until(created)
        run.cluster.run_until(admin.close())
        run.converge()


@contextmanager
def log_of(text: str) -> Iterator[list[str]]:
    """Collect the log lines that contain a text."""
    lines: list[str] = []

    @provider(ILogObserver)
    def observe(event: LogEvent) -> None:
        if text in event.get("log_format", ""):
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)
