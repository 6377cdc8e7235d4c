"""Types of faults, one function for each.

* ``machines``: crashes, shutdowns, pauses and power losses of brokers
* ``zookeeper``: crashes of the ZooKeeper server, and expired sessions
* ``ensemble``: faults of the servers of a ZooKeeper ensemble
* ``rolling``: rolling restarts
* ``network``: cut and slow links, broken connections
* ``disks``: full, failing and slow disks; ``clocks``: clock jumps and drift
* ``operations``: reassignments and elections; ``topics`` and ``partitions``: further operations of administrators
* ``roles``: faults during changes of leaders and controllers
* ``interruptions``: crashes of the controller during operations
* ``clients``: additional readers and offset queries
* ``security``: changes of users, ACLs and quotas
* ``applications``: faults of applications, and of the coordinators of their groups and transactions
* ``fault``: shared types and functions
"""

from __future__ import annotations

from kreplica.testing.storms.faults import (
    applications,
    clients,
    clocks,
    disks,
    ensemble,
    interruptions,
    machines,
    network,
    operations,
    partitions,
    roles,
    rolling,
    security,
    topics,
    zookeeper,
)
from kreplica.testing.storms.faults.fault import Begin

FAULTS: dict[str, tuple[Begin, float]] = {
    "kill": (machines.kill, 2.0),
    "lose power": (machines.lose_power, 2.0),
    "bounce": (machines.bounce, 1.0),
    "bounce repeatedly": (machines.bounce_repeatedly, 0.5),
    "rolling restart": (rolling.restart_all, 0.5),
    "kill all": (machines.kill_all, 0.5),
    "stop": (machines.stop, 1.0),
    "pause": (machines.pause, 1.5),
    "pause and kill": (machines.pause_and_kill, 0.5),
    "expire session": (zookeeper.expire_session, 1.0),
    "restart ZooKeeper": (zookeeper.restart, 1.0),
    "isolate ZooKeeper": (network.isolate_zookeeper, 0.5),
    "delay watches": (network.delay_watches, 0.5),
    "cut from ZooKeeper": (network.cut_from_zookeeper, 1.0),
    "cut brokers": (network.cut_brokers, 1.0),
    "isolate": (network.isolate, 1.0),
    "cut from client": (network.cut_from_client, 0.5),
    "drop connections": (network.drop_connections, 1.0),
    "half-open connections": (network.half_open_connections, 0.5),
    "limit throughput": (network.limit_throughput, 0.5),
    "delay network": (network.delay, 1.0),
    "run out of space": (disks.run_out_of_space, 0.5),
    "run out of space everywhere": (disks.run_out_of_space_everywhere, 1.0),
    "fill a follower": (disks.fill_follower, 0.5),
    "fail to sync": (disks.fail_to_sync, 0.5),
    "flip a bit": (disks.flip_bit, 0.5),
    "fail to read": (disks.fail_to_read, 0.5),
    "run out of descriptors": (disks.run_out_of_descriptors, 0.5),
    "slow disk": (disks.slow_down, 0.5),
    "clock jump": (clocks.jump, 0.5),
    "clock drift": (clocks.drift, 0.5),
    "reassign": (operations.reassign, 2.0),
    "elect": (operations.elect, 1.0),
    "interrupt controller": (interruptions.interrupt_controller, 1.0),
    "depose controller": (roles.depose_controller, 1.0),
    "move leaders": (roles.move_leaders, 1.0),
    "pause at election": (roles.pause_at_election, 1.0),
    "late segments": (roles.delay_segments, 1.5),
    "kill one by one": (roles.kill_one_by_one, 0.5),
    "read everything": (clients.read_everything, 1.0),
    "watch end": (clients.watch_high_watermark, 0.5),
    "create topic": (topics.create, 3.0),
    "delete topic": (topics.delete, 1.0),
    "replace topic": (topics.replace, 1.0),
    "grow topic": (partitions.grow, 2.0),
    "shrink topic": (partitions.shrink, 1.5),
    "replace partition": (partitions.replace, 1.5),
    "change settings": (topics.change_settings, 2.0),
}
"""Fault functions and their relative frequencies, by name."""

SIDE_TOPIC_FAULTS = (
    "create topic",
    "delete topic",
    "replace topic",
    "grow topic",
    "shrink topic",
    "replace partition",
    "change settings",
)
"""Faults of storms with side topics."""

APPLICATION_FAULTS: dict[str, tuple[Begin, float]] = {
    "kill application's coordinator": (applications.kill_coordinator, 2.0),
    "pause application's coordinator": (applications.pause_coordinator, 1.0),
    "isolate application's coordinator": (applications.isolate_coordinator, 1.0),
    "expire application's coordinator": (applications.expire_coordinator, 1.0),
    "kill application": (applications.kill, 2.0),
    "pause application": (applications.pause, 1.5),
    "replace application": (applications.replace, 1.5),
    "application leaves": (applications.leave, 1.5),
    "cut application off": (applications.cut_off, 1.5),
    "application loses connections": (applications.drop_connections, 1.5),
    "application's clock jumps": (applications.jump, 0.5),
}
"""Faults of storms with applications, in a separate plan."""

ENSEMBLE_FAULTS: dict[str, tuple[Begin, float]] = {
    "kill ensemble's leader": (ensemble.kill_leader, 2.0),
    "kill ensemble's server": (ensemble.kill_server, 1.0),
    "isolate ensemble's leader": (ensemble.isolate_leader, 1.5),
    "isolate ensemble's server": (ensemble.isolate_server, 1.0),
    "pause ensemble's leader": (ensemble.pause_leader, 1.0),
    "ensemble lags": (ensemble.lag, 3.0),
    "move session": (ensemble.move_session, 3.0),
}
"""Faults of storms with an ensemble of ZooKeeper servers, in a separate plan."""

SECURITY_FAULTS: dict[str, tuple[Begin, float]] = {
    "change password": (security.change_password, 2.0),
    "delete user": (security.delete_user, 1.0),
    "withdraw ACL": (security.withdraw_acl, 4.0),
    "set quota": (security.set_quota, 2.0),
    "restart broker in use": (security.restart_broker, 0.5),
}
"""Faults of storms with authentication, in a separate plan."""
