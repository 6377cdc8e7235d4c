"""Commands that come late: to another process, in another epoch, from a controller that is none any more."""

from __future__ import annotations

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.membership.stale_session import FILE_NAME as SESSION_FILE
from kreplica.testing.simulator.network import RETRANSMISSION_DELAY_S_MAX
from kreplica.testing.storms.replicated_run import TOPIC
from kreplica.zookeeper import SessionState
from tests.support.mutations.scenarios.scene import (
    BYSTANDER,
    CONTROLLER,
    FOLLOWER,
    LEADER,
    LOGS,
    OTHER,
    PATIENT,
    SESSION_S,
    cut,
    cut_off,
    delay,
    depose,
    end,
    hand_office_over,
    heal,
    hears_late,
    held,
    hush,
    isr,
    leave,
    lose_unsynced,
    name,
    order,
    prefer,
    recover,
    scene,
    speak,
    undelay,
    write,
    write_to_the_past,
)


def to_an_earlier_process(seed: int) -> None:
    """A command is on its way when its broker loses power; it finds another process, whose log is shorter."""
    with scene(seed, first=FOLLOWER) as run:
        run.acknowledge(60)
        delay(run, CONTROLLER, FOLLOWER, 2.0)
        cut(run, FOLLOWER, LEADER)
        prefer(run)
        hears_late(run, CONTROLLER, 4.0)
        lose_unsynced(run, FOLLOWER)
        run.launch(FOLLOWER)
        run.cluster.run(12)
        recover(run, CONTROLLER)
        undelay(run, CONTROLLER, FOLLOWER)
        heal(run, FOLLOWER, LEADER)
        run.converge()


def before_it_has_registered(seed: int) -> None:
    """A process that lost its predecessor's session waits until that expires; commands to that one reach it."""
    with scene(seed, first=FOLLOWER) as run:
        run.acknowledge(60)
        cut(run, FOLLOWER, LEADER)
        lose_unsynced(run, FOLLOWER)
        run.machine(FOLLOWER).host.disk.remove(f"{LOGS}/{SESSION_FILE}")
        run.launch(FOLLOWER)
        run.cluster.run_until(lambda: run.machine(FOLLOWER).program.server is not None)
        prefer(run)
        run.cluster.run(SESSION_S)
        heal(run, FOLLOWER, LEADER)
        run.converge()


def told_again_of_what_was(seed: int) -> None:
    """A new controller tells the leader who was in sync when it took office; the leader has let in one more since."""
    with scene(seed, bystanders=1) as run:
        leave(run, OTHER)
        delay(run, BYSTANDER, LEADER, 1.0)
        hand_office_over(run, BYSTANDER)
        heal(run, LEADER, OTHER)
        run.cluster.run_until(lambda: OTHER in isr(run))
        cut(run, LEADER, OTHER)
        run.cluster.run(4.0)
        undelay(run, BYSTANDER, LEADER)
        heal(run, LEADER, OTHER)
        run.converge()


def leads_again_and_heard_nothing(seed: int) -> None:
    """A leader leads again, two epochs later, and has not heard of the one between, in which others cut their logs."""
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


def fetched_in_an_epoch_that_is_over(seed: int) -> None:
    """A follower that was told of nothing goes on fetching from who leads again; then it hears what it missed."""
    with scene(seed, first=FOLLOWER, overrides=PATIENT) as run:
        cut(run, FOLLOWER, LEADER)
        write(run, 5)
        run.cluster.run(0.5)
        delay(run, CONTROLLER, OTHER, 4.0)
        prefer(run)
        run.cluster.run_until(lambda: not held(run, LEADER).is_leader)
        cut_off(run, FOLLOWER)
        cut(run, CONTROLLER, FOLLOWER)
        run.tell("the new leader's session expires, and it does not know")
        run.cluster.expire_session(FOLLOWER)
        run.cluster.run_until(lambda: held(run, LEADER).is_leader)
        run.cluster.run(8.0)
        undelay(run, CONTROLLER, OTHER)
        run.converge()


def from_a_controller_that_was_deposed(seed: int) -> None:
    """Another controller is elected; the old one, which does not know, is asked to elect a leader."""
    with scene(seed, first=FOLLOWER) as run:
        client = run.cluster.client(broker=CONTROLLER)
        run.cluster.run_until(client.metadata())
        depose(run, OTHER, 2.0)
        run.cluster.run(0.5)
        try:
            run.cluster.run_until(client.elect_preferred(TOPIC, 0))
        except (ClientError, KafkaError) as error:
            run.tell(f"it refuses: {error}")
        recover(run, CONTROLLER)
        run.cluster.run(5.0)
        run.converge()


def overtaken_by_the_next_controller(seed: int) -> None:
    """A command of the old controller arrives after those of the new one, which has had another leader elected."""
    with scene(seed, first=FOLLOWER, bystanders=1) as run:
        delay(run, CONTROLLER, OTHER, 4.0)
        prefer(run)
        depose(run, BYSTANDER, 5.0)
        run.cluster.expire_session(FOLLOWER)
        run.kill(FOLLOWER)
        run.cluster.run_until(lambda: held(run, OTHER).leadership.leader == LEADER)
        run.cluster.run_until(lambda: held(run, LEADER).is_leader)
        run.cluster.run(5.0)
        undelay(run, CONTROLLER, OTHER)
        recover(run, CONTROLLER)
        run.converge()


def overtaken_on_the_next_connection(seed: int) -> None:
    """The controller gives up a connection, says all again on the next one, and more; then what was on the first
    arrives: it has a broker begin what it has deleted since."""
    with scene(seed, first=FOLLOWER, bystanders=1, overrides=["controller.socket.timeout.ms=3000"]) as run:
        delay(run, CONTROLLER, OTHER, 8.0)
        prefer(run)
        hush(run)
        undelay(run, CONTROLLER, OTHER)
        client = run.cluster.client(broker=CONTROLLER)
        run.cluster.run_until(client.reassign(TOPIC, 0, [FOLLOWER, LEADER, BYSTANDER]))
        run.cluster.run_until(client.close())
        disk, directory = run.machine(OTHER).host.disk, str(run.keys[0])
        run.cluster.run_until(lambda: directory not in disk.list_directory(LOGS))
        run.cluster.run(8.0)
        assert directory not in disk.list_directory(LOGS), f"broker {OTHER} holds again what it has deleted"
        speak(run)
        run.converge()


def to_a_session_that_has_ended(seed: int) -> None:
    """A broker's session ends while a command is on its way that has it lead; it has not registered anew yet."""
    with scene(seed) as run:
        order(run, FOLLOWER)
        prefer(run)
        order(run, LEADER)
        run.settle()
        run.network.cut(name(CONTROLLER), name(LEADER), one_way=True)
        prefer(run)
        hears_late(run, LEADER, 1.0)
        program = run.machine(LEADER).program
        heard: list[SessionState] = []
        program.client.on_session_event(heard.append)
        run.tell("the session of the new leader, which has not heard of it, expires")
        run.cluster.expire_session(LEADER)
        run.cluster.run_until(lambda: SessionState.EXPIRED in heard)
        heal(run, CONTROLLER, LEADER)
        run.cluster.run(RETRANSMISSION_DELAY_S_MAX)
        cut(run, CONTROLLER, LEADER)
        run.cluster.run_until(lambda: not program.client.session_may_have_expired)
        write_to_the_past(run)
