"""Controller commands that arrive late: at another process, in another epoch, from a former controller."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.membership.stale_session import FILE_NAME as SESSION_FILE
from kreplica.testing.simulator.network import RETRANSMISSION_DELAY_S_MAX
from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.zookeeper import SessionState
from tests.support.mutations.scenarios.scene import (
    BYSTANDER,
    CONTROLLER,
    COORDINATOR,
    FOLLOWER,
    LEADER,
    LOGS,
    OTHER,
    PATIENT,
    SESSION_S,
    cut,
    cut_off,
    delay,
    delay_zookeeper,
    depose,
    end,
    heal,
    isr,
    leave,
    lose_unsynced,
    name,
    order,
    partition_on,
    pause_producer,
    prefer,
    recover,
    resume_producer,
    scene,
    transfer_controller,
    undelay,
    write,
    write_to_deposed_leader,
)


def command_reaches_restarted_broker(seed: int) -> None:
    """A broker loses power while a command is in flight; its next process, with a shorter log, receives the command."""
    with scene(seed, first=FOLLOWER) as run:
        run.run_until_acknowledged(60)
        delay(run, CONTROLLER, FOLLOWER, 2.0)
        cut(run, FOLLOWER, LEADER)
        prefer(run)
        delay_zookeeper(run, CONTROLLER, 4.0)
        lose_unsynced(run, FOLLOWER)
        run.launch(FOLLOWER)
        run.cluster.run(12)
        recover(run, CONTROLLER)
        undelay(run, CONTROLLER, FOLLOWER)
        heal(run, FOLLOWER, LEADER)
        run.converge()


def command_before_registration(seed: int) -> None:
    """A command for a broker's previous process arrives while the next process waits for the old session to expire."""
    with scene(seed, first=FOLLOWER) as run:
        run.run_until_acknowledged(60)
        cut(run, FOLLOWER, LEADER)
        lose_unsynced(run, FOLLOWER)
        run.machine(FOLLOWER).host.disk.remove(f"{LOGS}/{SESSION_FILE}")
        run.launch(FOLLOWER)
        run.cluster.run_until(lambda: run.machine(FOLLOWER).program.server is not None)
        prefer(run)
        run.cluster.run(SESSION_S)
        heal(run, FOLLOWER, LEADER)
        run.converge()


def outdated_isr_from_new_controller(seed: int) -> None:
    """A new controller sends an outdated ISR to the leader, which has added a replica in the meantime."""
    with scene(seed, bystanders=1) as run:
        leave(run, OTHER)
        delay(run, BYSTANDER, LEADER, 1.0)
        transfer_controller(run, BYSTANDER)
        heal(run, LEADER, OTHER)
        run.cluster.run_until(lambda: OTHER in isr(run))
        cut(run, LEADER, OTHER)
        run.cluster.run(4.0)
        undelay(run, BYSTANDER, LEADER)
        heal(run, LEADER, OTHER)
        run.converge()


def leader_missed_an_epoch(seed: int) -> None:
    """A broker is leader again two epochs later; it missed the epoch in which other replicas truncated their logs."""
    with scene(seed, first=FOLLOWER, overrides=PATIENT) as run:
        cut(run, FOLLOWER, LEADER)
        write(run, 5)
        run.cluster.run(0.5)
        cut(run, CONTROLLER, LEADER)
        prefer(run)
        run.cluster.run_until(lambda: end(run, OTHER) < end(run, LEADER))
        for broker in (FOLLOWER, CONTROLLER):
            run.cluster.expire_session(broker)
            run.kill(broker)
        run.cluster.run_until(lambda: run.leader() == LEADER)
        run.cluster.run(1.0)
        run.converge()


def fetch_of_previous_epoch(seed: int) -> None:
    """A follower that missed a leader epoch fetches with the old epoch from a broker that is leader again."""
    with scene(seed, first=FOLLOWER, overrides=PATIENT) as run:
        cut(run, FOLLOWER, LEADER)
        write(run, 5)
        run.cluster.run(0.5)
        delay(run, CONTROLLER, OTHER, 4.0)
        prefer(run)
        run.cluster.run_until(lambda: not partition_on(run, LEADER).is_leader)
        cut_off(run, FOLLOWER)
        cut(run, CONTROLLER, FOLLOWER)
        run.note("the new leader's session expires without its knowledge")
        run.cluster.expire_session(FOLLOWER)
        run.cluster.run_until(lambda: partition_on(run, LEADER).is_leader)
        run.cluster.run(8.0)
        undelay(run, CONTROLLER, OTHER)
        run.converge()


def deposed_controller_elects_leader(seed: int) -> None:
    """A deposed controller that does not know of its successor receives a request to elect a leader."""
    with scene(seed, first=FOLLOWER) as run:
        client = run.cluster.client(broker=CONTROLLER)
        run.cluster.run_until(client.metadata())
        depose(run, OTHER, 2.0)
        run.cluster.run(0.5)
        try:
            run.cluster.run_until(client.elect_preferred(TOPIC, 0))
        except (ClientError, KafkaError) as error:
            run.note(f"the controller rejects the request: {error}")
        recover(run, CONTROLLER)
        run.cluster.run(5.0)
        run.converge()


def command_of_previous_controller(seed: int) -> None:
    """A command from the old controller arrives after the new controller has elected another leader."""
    with scene(seed, first=FOLLOWER, bystanders=1) as run:
        delay(run, CONTROLLER, OTHER, 4.0)
        prefer(run)
        depose(run, BYSTANDER, 5.0)
        run.cluster.expire_session(FOLLOWER)
        run.kill(FOLLOWER)
        run.cluster.run_until(lambda: partition_on(run, OTHER).leadership.leader == LEADER)
        run.cluster.run_until(lambda: partition_on(run, LEADER).is_leader)
        run.cluster.run(5.0)
        undelay(run, CONTROLLER, OTHER)
        recover(run, CONTROLLER)
        run.converge()


def command_of_previous_connection(seed: int) -> None:
    """The controller reconnects and sends newer commands; then an old command arrives on the first connection.

    The command would make a broker create a replica that it has deleted in the meantime.
    """
    with scene(seed, first=FOLLOWER, bystanders=1, overrides=["controller.socket.timeout.ms=3000"]) as run:
        delay(run, CONTROLLER, OTHER, 8.0)
        prefer(run)
        pause_producer(run)
        undelay(run, CONTROLLER, OTHER)
        client = run.cluster.client(broker=CONTROLLER)
        run.cluster.run_until(client.reassign(TOPIC, 0, [FOLLOWER, LEADER, BYSTANDER]))
        run.cluster.run_until(client.close())
        disk, directory = run.machine(OTHER).host.disk, str(run.keys[0])
        run.cluster.run_until(lambda: directory not in disk.list_directory(LOGS))
        run.cluster.run(8.0)
        assert directory not in disk.list_directory(LOGS), f"broker {OTHER} has created a deleted replica again"
        resume_producer(run)
        run.converge()


def command_after_session_expiry(seed: int) -> None:
    """A command that makes a broker leader arrives after its session has expired and before it registers again."""
    with scene(seed) as run:
        order(run, FOLLOWER)
        prefer(run)
        order(run, LEADER)
        run.settle()
        run.network.cut(name(CONTROLLER), name(LEADER), one_way=True)
        prefer(run)
        delay_zookeeper(run, LEADER, 1.0)
        program = run.machine(LEADER).program
        heard: list[SessionState] = []
        program.client.on_session_event(heard.append)
        run.note("the session of the new leader, which has not received the command, expires")
        run.cluster.expire_session(LEADER)
        run.cluster.run_until(lambda: SessionState.EXPIRED in heard)
        heal(run, CONTROLLER, LEADER)
        run.cluster.run(RETRANSMISSION_DELAY_S_MAX)
        cut(run, CONTROLLER, LEADER)
        run.cluster.run_until(lambda: not program.client.session_may_have_expired)
        write_to_deposed_leader(run)


def lost_write_of_controller(seed: int) -> None:
    """The controller elects a leader, and loses its connection to ZooKeeper along with the write."""
    with scene(seed, first=FOLLOWER) as run:
        client = run.cluster.client(broker=CONTROLLER)
        run.cluster.run_until(client.metadata())
        run.note("the controller's requests to ZooKeeper are lost")
        run.network.cut(name(CONTROLLER), COORDINATOR, one_way=True)
        election = Deferred.fromCoroutine(client.elect_preferred(TOPIC, 0))
        election.addErrback(lambda failure: run.note(f"the election fails: {failure.value}"))
        run.cluster.run(0.5)
        run.network.drop_connections(name(CONTROLLER), COORDINATOR)
        run.network.heal(name(CONTROLLER), COORDINATOR)
        run.cluster.run(5.0)
        run.cluster.run_until(client.close())
        run.converge()
