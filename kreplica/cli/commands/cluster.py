"""``kreplica cluster``: summary of the cluster."""

from __future__ import annotations

from typing import Any

import click

from kreplica.cli.http.session import Session, with_session
from kreplica.cli.terminal.screen import Screen, problem_text


@click.command()
@with_session
def command(session: Session) -> None:
    """Show brokers, controller and the number of unhealthy partitions."""
    session.show(session.get("/v1/cluster"), _print_cluster)


def _print_cluster(screen: Screen, cluster: dict[str, Any]) -> None:
    controller = cluster["controller"] or {}
    zookeeper = cluster["zookeeper"] or {}
    broker_id, epoch = controller.get("broker_id"), controller.get("epoch")
    screen.pairs(
        [
            ("cluster", cluster["cluster_id"]),
            ("kreplica", cluster["kreplica_version"]),
            ("controller", problem_text("none") if broker_id is None else f"broker {broker_id}, epoch {epoch}"),
            ("queried", f"broker {cluster['broker_id']}"),
            ("live brokers", cluster["live_brokers"]),
            ("topics", cluster["topics"]),
            ("partitions", cluster["partitions"]),
            ("  offline", _problem_count(cluster["offline_partitions"])),
            ("  under-replicated", _problem_count(cluster["under_replicated_partitions"])),
            ("  under min.insync.replicas", _problem_count(cluster["under_min_isr_partitions"])),
            ("zookeeper", zookeeper.get("connect")),
            ("standalone", True if cluster.get("standalone") else None),
        ]
    )


def _problem_count(partitions: Any) -> Any:
    """Return a number of unhealthy partitions, highlighted unless it is 0."""
    if isinstance(partitions, list):
        partitions = len(partitions)
    return partitions if partitions is None else problem_text(partitions, when=partitions > 0)
