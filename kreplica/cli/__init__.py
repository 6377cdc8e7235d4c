"""The ``kreplica`` command; a file per subcommand, imported only when it is asked for.

Commands that ask the admin API of a running cluster:

* ``cluster``, ``broker`` (``broker_drain``), ``topic`` (``topic_config``, ``topic_shrink``), ``partition``,
  ``group`` (``group_reset``), ``config``
* ``plan``; ``plan_make`` one subcommand per kind, ``plan_watch`` its progress, ``plan_views`` how plans are shown
* ``election``, ``why``, ``timeline``

Commands that speak the Kafka protocol, with any cluster:

* ``produce`` records from lines (``line_input``), ``consume`` records as lines (``positions``, ``record_format``)
* ``topic_export`` and ``topic_import``: a topic as a file (``archive_files``, ``archive_parquet``, ``record_json``)
* ``topic_copy``, ``copying``: a topic to another one, checked; ``topic_making`` makes that
* ``verify`` loads a cluster while it fails
* ``pipeline_archive``, ``pipeline_replay``, ``pipeline_audit``, ``pipeline_compare``, ``pipeline_profile``: whole
  topics through Spark; ``pipeline_running`` Spark's session, progress, reports
* ``data_access`` brokers, Ctrl-C and closed pipes; ``data_progress`` bars

Commands that need no cluster:

* ``zookeeper`` starts a real one
* ``log``: ``log_dump`` (``log_entries``, ``log_lines``) and ``log_verify``, what a broker's files hold
* ``simulate`` whole clusters from a seed, with faults; ``replay`` what a controller noted of its decisions
* ``completion`` for shells

What they have in common:

* ``lazy`` groups of commands that are imported when they run
* ``session`` where the admin API is, how answers and problems are shown
* ``rest`` asks it; ``server_events`` its streams
* ``running`` the reactor's one run
* ``screen`` tables and lines; ``texts`` what people type: times, durations, sizes, partitions
* ``configs`` settings of topics and brokers; ``request_commands`` requests as commands
* ``reference`` all commands, for the page about them
"""

from __future__ import annotations

import click

from kreplica import __version__
from kreplica.cli.terminal.lazy_groups import HELP_OPTIONS, LazyGroup, Subcommand

SUBCOMMANDS = {
    "produce": Subcommand("records.produce", "Write records to a topic, one a line."),
    "consume": Subcommand("records.consume", "Print the records of a topic."),
    "cluster": Subcommand("commands.cluster", "The cluster in a few lines."),
    "broker": Subcommand("commands.broker", "Brokers: list, show, cordon, uncordon, drain."),
    "topic": Subcommand("commands.topic", "Topics: list, show, create, grow, shrink, delete, settings."),
    "partition": Subcommand(
        "commands.partition", "Partitions: list those that are offline, under-replicated or moving."
    ),
    "group": Subcommand("commands.group", "Groups: list, show, lag, delete, reset their offsets."),
    "plan": Subcommand(
        "commands.plan", "Plans that move, add and remove replicas: make, list, show, watch, set, cancel."
    ),
    "election": Subcommand("commands.election", "Leaders by hand: list, preferred, unclean."),
    "config": Subcommand("commands.config", "Settings of topics and brokers: get, set, remove."),
    "why": Subcommand("commands.why", "Why a partition, a group, a plan or a broker is as it is, and what you can do."),
    "timeline": Subcommand("commands.timeline", "What happened in the cluster, and what happens."),
    "zookeeper": Subcommand("commands.zookeeper", "Start a real ZooKeeper on this machine."),
    "log": Subcommand("diagnostics.log", "A broker's files: dump, verify."),
    "pipeline": Subcommand(
        "pipelines.pipeline", "Whole topics through Spark: archive, replay, audit, compare, profile."
    ),
    "verify": Subcommand("diagnostics.verify", "Load any Kafka-compatible cluster, and report what it did wrong."),
    "simulate": Subcommand("diagnostics.simulate", "Run whole clusters with faults on virtual time, from seeds."),
    "replay": Subcommand("diagnostics.replay", "Decide again what a controller decided, from its journal."),
    "completion": Subcommand("commands.completion", "Print what makes a shell complete commands and options."),
}
"""The commands by name."""


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS, context_settings=HELP_OPTIONS)
@click.version_option(__version__, message="kreplica %(version)s")
def main() -> None:
    """A replicated log server that speaks the Kafka protocol: its tools.

    Commands that ask a running cluster find it with --admin or KREPLICA_ADMIN.  They end with status 0 when all is
    well, 1 when something was refused or failed, and 2 when the command was mistyped.
    """
