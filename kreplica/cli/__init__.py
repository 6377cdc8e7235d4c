"""The ``kreplica`` command: one module per subcommand, imported only when the subcommand runs.

* ``local``: the cluster on this machine: start, stop, status
* ``profiles``: named clusters, and the cluster that a command uses
* ``commands``: administration of a running cluster through the admin API, and tools such as shell completion
* ``plans``: reassignment plans, through the admin API
* ``security``: users, delegation tokens, ACLs, quotas, development certificates and protected znodes
* ``records``: ``produce`` and ``consume``, for any Kafka cluster
* ``transfer``: export, import and copying of topics, for any Kafka cluster
* ``pipelines``: Spark pipelines over whole topics
* ``diagnostics``: inspection of log files, replay of controller journals, simulations, verification of clusters
* ``http``: admin API client, and the options and output that commands share
* ``terminal``: parameter types, tables, progress bar, reactor, command groups
"""

from __future__ import annotations

import click

from kreplica import __version__
from kreplica.cli.profiles.choice import profile_option
from kreplica.cli.terminal.lazy_groups import HELP_OPTIONS, LazyGroup, Subcommand

SUBCOMMANDS = {
    "start": Subcommand("local.start", "Start a cluster on this machine."),
    "stop": Subcommand("local.stop", "Stop the cluster that `kreplica start` started."),
    "status": Subcommand("local.status", "Show whether a cluster is running on this machine, and its addresses."),
    "profile": Subcommand("profiles.profile", "Named clusters: list, show, create, use, set, edit, delete."),
    "produce": Subcommand("records.produce", "Write records to a topic, one per line."),
    "consume": Subcommand("records.consume", "Print the records of a topic."),
    "cluster": Subcommand("commands.cluster", "Show a summary of the cluster."),
    "broker": Subcommand("commands.broker", "Brokers: list, show, connections, cordon, uncordon, drain."),
    "client": Subcommand("commands.client", "Clients that push their metrics: list, show, subscriptions."),
    "topic": Subcommand(
        "commands.topic", "Topics: list, show, create, grow, shrink, delete, config, export, import, copy."
    ),
    "partition": Subcommand("commands.partition", "Partitions: list (offline, under-replicated, moving), show."),
    "group": Subcommand("commands.group", "Consumer groups: list, show, lag, delete, reset (committed offsets)."),
    "plan": Subcommand("plans.plan", "Reassignment plans: make, list, show, watch, set, cancel, delete."),
    "election": Subcommand("commands.election", "Leader elections: list, preferred, unclean."),
    "controller": Subcommand("commands.controller", "The controller: show, resign."),
    "config": Subcommand("commands.config", "Settings of topics, brokers and client metrics: get, set, remove."),
    "acl": Subcommand("security.acl", "Access control lists: list, create, delete."),
    "token": Subcommand("security.token", "Delegation tokens of users: list, create, renew, expire."),
    "user": Subcommand("security.user", "Users with passwords (SCRAM): list, create, password, delete."),
    "quota": Subcommand("security.quota", "Quotas for users, client IDs and IP addresses: list, set, delete."),
    "why": Subcommand(
        "commands.why",
        "Explain the state of a partition, group or plan, a slow broker, a throttled client, or a user's access.",
    ),
    "timeline": Subcommand("commands.timeline", "Show past and new events of the cluster."),
    "zookeeper": Subcommand("commands.zookeeper", "Run a ZooKeeper server on this machine."),
    "znodes": Subcommand("security.znodes", "ACLs of the cluster's znodes in ZooKeeper: protect, unprotect."),
    "tls": Subcommand("security.tls", "Certificates for development: dev-ca."),
    "log": Subcommand("diagnostics.log", "Log files of a broker: dump, verify."),
    "pipeline": Subcommand(
        "pipelines.pipeline", "Spark pipelines over whole topics: archive, replay, audit, compare, profile."
    ),
    "verify": Subcommand(
        "diagnostics.verify", "Run a workload on any Kafka-compatible cluster and report violated guarantees."
    ),
    "simulate": Subcommand(
        "diagnostics.simulate", "Simulate clusters with faults in virtual time, reproducibly from seeds."
    ),
    "designs": Subcommand("diagnostics.designs", "Compare three designs of cluster coordination in virtual time."),
    "replay": Subcommand("diagnostics.replay", "Replay a controller's journal and compare its decisions."),
    "completion": Subcommand("commands.completion", "Print the completion script for bash, zsh or fish."),
}
"""Commands by name."""


def _print_version(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if not is_given or context.resilient_parsing:
        return
    from kreplica.runtime.interpreter import interpreter
    from kreplica.wire.kernels import description

    click.echo(f"kreplica {__version__}\nPython {interpreter()}\n{description()}")
    context.exit()


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS, context_settings=HELP_OPTIONS)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Show the versions of kreplica and Python, and whether the C or the Python kernels are "
              "used.")  # fmt: skip
@profile_option
def main() -> None:
    """Command-line tools for kreplica, a replicated log server that speaks the Kafka protocol.

    The first of these that is set selects the cluster: --admin, --profile, KREPLICA_ADMIN, KREPLICA_PROFILE, the
    current profile (`kreplica profile use`); otherwise it is the cluster that `kreplica start` started on this machine.

    Exit status: 0 for success, 1 if the operation was rejected or failed, 2 for invalid arguments.
    """
