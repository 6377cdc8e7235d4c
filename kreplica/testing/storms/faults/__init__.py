"""What can go wrong, a function each; a kind of fault is a line in ``FAULTS``.

* ``machines`` processes that are killed, stopped, paused, without power; ``coordinator`` the same for the coordinator
* ``rolling`` brokers that are restarted one after the other
* ``network`` links that are cut or slow, connections that break
* ``disks`` no space, failing syncs, bad media; ``clocks``
* ``operations`` what administrators do meanwhile: reassignments, elections; ``topics`` which come and go, and their
  ``partitions``
* ``roles`` trouble just when leaders and controllers change
* ``interruptions`` controllers that die over such things
* ``clients`` who read from the beginning, and ask for offsets
* ``chains`` coordinators of groups and transactions, and the members of these
* ``applications`` the same for programs that use the client library
* ``fault`` what all of them have
"""

from __future__ import annotations

from kreplica.testing.storms.faults import (
    applications,
    chains,
    clients,
    clocks,
    coordinator,
    disks,
    interruptions,
    machines,
    network,
    operations,
    partitions,
    roles,
    rolling,
    topics,
)
from kreplica.testing.storms.faults.fault import Begin

FAULTS: dict[str, tuple[Begin, float]] = {
    "kill": (machines.kill, 2.0),
    "lose power": (machines.lose_power, 2.0),
    "bounce": (machines.bounce, 1.0),
    "bounce again and again": (machines.bounce_again_and_again, 0.5),
    "roll": (rolling.roll, 0.5),
    "kill all": (machines.kill_all, 0.5),
    "stop": (machines.stop, 1.0),
    "pause": (machines.pause, 1.5),
    "pause and kill": (machines.pause_and_kill, 0.5),
    "expire session": (coordinator.expire_session, 1.0),
    "restart coordinator": (coordinator.restart, 1.0),
    "isolate coordinator": (network.isolate_coordinator, 0.5),
    "delay watches": (network.delay_watches, 0.5),
    "cut from coordinator": (network.cut_from_coordinator, 1.0),
    "cut brokers": (network.cut_brokers, 1.0),
    "isolate": (network.isolate, 1.0),
    "cut from client": (network.cut_from_client, 0.5),
    "drop connections": (network.drop_connections, 1.0),
    "forget connections": (network.forget_connections, 0.5),
    "narrow": (network.narrow, 0.5),
    "slow down": (network.slow_down, 1.0),
    "run out of space": (disks.run_out_of_space, 0.5),
    "run out of space everywhere": (disks.run_out_of_space_everywhere, 1.0),
    "fill a follower": (disks.fill_follower, 0.5),
    "fail to sync": (disks.fail_to_sync, 0.5),
    "flip a bit": (disks.flip_bit, 0.5),
    "fail to read": (disks.fail_to_read, 0.5),
    "run out of descriptors": (disks.run_out_of_descriptors, 0.5),
    "slow disk": (disks.slow_down, 0.5),
    "jump in time": (clocks.jump, 0.5),
    "drift": (clocks.drift, 0.5),
    "reassign": (operations.reassign, 2.0),
    "elect": (operations.elect, 1.0),
    "interrupt": (interruptions.interrupt, 1.0),
    "depose": (roles.depose, 1.0),
    "flip": (roles.flip, 1.0),
    "pause at change": (roles.pause_at_change, 1.0),
    "speak late": (roles.speak_late, 1.5),
    "kill in order": (roles.kill_in_order, 0.5),
    "read everything": (clients.read_everything, 1.0),
    "watch end": (clients.watch_end, 0.5),
    "create topic": (topics.create, 3.0),
    "delete topic": (topics.delete, 1.0),
    "replace topic": (topics.replace, 1.0),
    "grow topic": (partitions.grow, 2.0),
    "shrink topic": (partitions.shrink, 1.5),
    "replace partition": (partitions.replace, 1.5),
    "change settings": (topics.change_settings, 2.0),
}
"""By name: what it does, and how often it is chosen compared with others."""

OF_SIDE_TOPICS = (
    "create topic",
    "delete topic",
    "replace topic",
    "grow topic",
    "shrink topic",
    "replace partition",
    "change settings",
)
"""Those for storms that have topics besides the main one."""

OF_CHAINS: dict[str, tuple[Begin, float]] = {
    "kill group coordinator": (chains.kill_coordinator, 2.0),
    "pause group coordinator": (chains.pause_coordinator, 1.0),
    "isolate group coordinator": (chains.isolate_coordinator, 1.0),
    "expire group coordinator": (chains.expire_coordinator, 1.0),
    "kill member": (chains.kill_member, 2.0),
    "pause member": (chains.pause_member, 1.0),
    "replace member": (chains.replace_member, 1.5),
    "member leaves": (chains.member_leaves, 1.0),
}
"""Those for storms that have a chain, in a plan of their own beside that of the others."""

OF_APPLICATIONS: dict[str, tuple[Begin, float]] = {
    "kill application's coordinator": (applications.kill_coordinator, 2.0),
    "pause application's coordinator": (applications.pause_coordinator, 1.0),
    "isolate application's coordinator": (applications.isolate_coordinator, 1.0),
    "expire application's coordinator": (applications.expire_coordinator, 1.0),
    "kill application": (applications.kill, 2.0),
    "pause application": (applications.pause, 1.5),
    "replace application": (applications.replace, 1.0),
    "application leaves": (applications.leave, 1.5),
    "cut application off": (applications.cut_off, 1.5),
    "application loses connections": (applications.drop_connections, 1.5),
    "application's clock jumps": (applications.jump, 0.5),
}
"""Those for storms that have applications, in a plan of their own too."""
