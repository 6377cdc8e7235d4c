"""Faults of group and transaction coordinators, and of group members."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from kreplica.model import TopicPartition
from kreplica.testing.storms.clients.chain import Chain
from kreplica.testing.storms.clients.slots import Slot
from kreplica.testing.storms.faults.fault import Begin, End, broker_name
from kreplica.testing.storms.replicated_run import ReplicatedRun


class CoordinatorClients(Protocol):
    def coordinators(self) -> list[TopicPartition]:
        """Return the internal partition of each group and transactional ID, with duplicates."""


ClientsOf = Callable[[ReplicatedRun], CoordinatorClients]
"""Selects the clients whose coordinators a fault affects."""


def chain_of(run: ReplicatedRun) -> Chain:
    return next(companion for companion in run.companions if isinstance(companion, Chain))


# --- coordinators ----------------------------------------------------------------------------------------------------


def _coordinator(run: ReplicatedRun, random: Random, clients_of: ClientsOf) -> int | None:
    """Select a running broker that coordinates a group or a transactional ID."""
    key = random.choice(clients_of(run).coordinators())
    leader = run.cluster.leader_of(*key)
    if leader not in run.cluster.brokers or not run.machine(leader).running:
        return None
    run.note(f"broker {leader} leads {key}")
    return leader


def kill_coordinator(run: ReplicatedRun, random: Random, clients_of: ClientsOf = chain_of) -> End | None:
    """``kill -9``; started again at the end."""
    broker = _coordinator(run, random, clients_of)
    if broker is None:
        return None
    run.kill(broker)
    return lambda: run.launch(broker)


def pause_coordinator(run: ReplicatedRun, random: Random, clients_of: ClientsOf = chain_of) -> End | None:
    """``SIGSTOP``; ``SIGCONT`` at the end, when another broker may be coordinator without its knowledge."""
    broker = _coordinator(run, random, clients_of)
    if broker is None:
        return None
    run.note(f"broker {broker} is paused")
    host = run.machine(broker).host
    host.pause()
    return host.resume


def isolate_coordinator(run: ReplicatedRun, random: Random, clients_of: ClientsOf = chain_of) -> End | None:
    """Cut a group's coordinator off from ZooKeeper and the other brokers, but not from clients."""
    broker = _coordinator(run, random, clients_of)
    if broker is None:
        return None
    name = broker_name(broker)
    others = ["coordinator", *(broker_name(other) for other in run.cluster.brokers if other != broker)]
    run.note(f"broker {broker} can only reach clients")
    for other in others:
        run.network.cut(name, other)

    def end() -> None:
        for other in others:
            run.network.heal(name, other)

    return end


def expire_coordinator(run: ReplicatedRun, random: Random, clients_of: ClientsOf = chain_of) -> None:
    """Expire a coordinator's ZooKeeper session; others are elected before it notices."""
    broker = _coordinator(run, random, clients_of)
    machine = run.cluster.coordinator
    if broker is not None and machine.running and machine.program.serving is not None:
        run.note(f"the session of broker {broker} expires")
        run.cluster.expire_session(broker)


# --- members ---------------------------------------------------------------------------------------------------------


def kill_slot(slot: Slot) -> End:
    """Kill a client; another one starts at the end."""
    slot.kill()
    return slot.fill


def pause_slot(slot: Slot) -> End:
    """Pause a client, which may lose its membership meanwhile."""
    slot.note("is paused")
    host = slot.host
    host.pause()

    def end() -> None:
        slot.note("resumes")
        host.resume()

    return end


def replace_slot(slot: Slot) -> End:
    """Pause a client and start another one in its place; the first resumes as a zombie."""
    end = pause_slot(slot)
    slot.start()
    return end


def leave_slot(slot: Slot) -> End:
    """Let a client leave its group; another one starts at the end."""
    slot.leave()
    return slot.fill


def _for_random_member(fault: Callable[[Slot], End | None]) -> Begin:
    def begin(run: ReplicatedRun, random: Random) -> End | None:
        chain = chain_of(run)
        slots = [slot for slot in (*chain.processors, *chain.slots) if slot.is_occupied]
        return fault(random.choice(slots)) if slots else None

    return begin


kill_member, pause_member, replace_member, member_leaves = map(
    _for_random_member, (kill_slot, pause_slot, replace_slot, leave_slot)
)
