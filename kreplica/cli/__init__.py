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
    "produce": Subcommand("records.produce", "Write records to a topic, one per line."),
    "consume": Subcommand("records.consume", "Print the records of a topic."),
    "cluster": Subcommand("commands.cluster", "Show a summary of the cluster."),
    "broker": Subcommand("commands.broker", "Brokers: list, show, cordon, uncordon, drain."),
    "topic": Subcommand("commands.topic", "Topics: list, show, create, grow, shrink, delete, settings."),
    "partition": Subcommand("commands.partition", "Partitions: list (offline, under-replicated, moving), show."),
    "group": Subcommand("commands.group", "Groups: list, show, lag, delete, reset their offsets."),
    "plan": Subcommand("commands.plan", "Reassignment plans: make, list, show, watch, set, cancel, delete."),
    "election": Subcommand("commands.election", "Leader elections: list, preferred, unclean."),
    "config": Subcommand("commands.config", "Settings of topics and brokers: get, set, remove."),
    "why": Subcommand("commands.why", "Explain the state of a partition, group, plan or broker and what to do."),
    "timeline": Subcommand("commands.timeline", "Show the cluster's events, past and new."),
    "zookeeper": Subcommand("commands.zookeeper", "Start a real ZooKeeper on this machine."),
    "log": Subcommand("diagnostics.log", "Log files of a broker: dump, verify."),
    "pipeline": Subcommand(
        "pipelines.pipeline", "Spark pipelines over whole topics: archive, replay, audit, compare, profile."
    ),
    "verify": Subcommand(
        "diagnostics.verify", "Run a load on any Kafka-compatible cluster and report violated guarantees."
    ),
    "simulate": Subcommand("diagnostics.simulate", "Simulate whole clusters with faults on virtual time, from seeds."),
    "replay": Subcommand("diagnostics.replay", "Replay a controller's decisions from its journal."),
    "completion": Subcommand("commands.completion", "Print the shell completion script."),
}
"""The commands by name."""


@click.group(cls=LazyGroup, subcommands=SUBCOMMANDS, context_settings=HELP_OPTIONS)
@click.version_option(__version__, message="kreplica %(version)s")
def main() -> None:
    """Tools of kreplica, a replicated log server that speaks the Kafka protocol.

    Commands that query a running cluster find it by --admin or KREPLICA_ADMIN.  Exit status: 0 for success, 1 if the
    operation was rejected or failed, 2 for wrong arguments.
    """
