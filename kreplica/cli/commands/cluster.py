"""``kreplica cluster``: summary of the cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kreplica.cli.commands.faults import print_faults
from kreplica.cli.http.session import Session, with_session
from kreplica.cli.terminal.screen import Screen, cordoned_text, count_text, problem_text

if TYPE_CHECKING:
    from kreplica.cli.http.rest import Document, RestClient


@click.command()
@with_session
def command(session: Session) -> None:
    """Show brokers, the controller, the number of unhealthy partitions, certificates about to expire, and faults."""
    cluster, metrics = session.run_with_client(partial(_read, with_metrics=not session.as_json))
    session.show(cluster, lambda screen, _: _print_cluster(screen, cluster, metrics))


async def _read(client: RestClient, *, with_metrics: bool) -> tuple[Document, Document]:
    """Return the cluster's summary and, if requested, the metrics of all brokers."""
    return await client.get("/v1/cluster"), await client.get("/v1/live-metrics") if with_metrics else {}


def _print_cluster(screen: Screen, cluster: dict[str, Any], metrics: dict[str, Any]) -> None:
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
            ("certificates", _first_expiry(metrics["brokers"])),
            ("zookeeper", _zookeeper_text(zookeeper)),
            ("standalone", True if cluster.get("standalone") else None),
        ]
    )
    for problem in metrics["problems"]:
        screen.line(f"The certificates of a broker are unknown: {problem}", "yellow")
    cordoned = cluster.get("cordoned_brokers")
    if cordoned:
        screen.line(cordoned_text(cordoned))
    health = cluster.get("health")
    if health is not None:
        print_faults(screen, health["faults"], health["problems"])


def _zookeeper_text(zookeeper: dict[str, Any]) -> Any:
    session = zookeeper.get("session")
    if session in (None, "connected"):
        return zookeeper.get("connect")
    return problem_text(f"{zookeeper.get('connect')} (session {session}: showing the last known data)")


def _first_expiry(brokers: list[dict[str, Any]]) -> Any:
    """Return when the first certificate expires, highlighted if its broker warns about it; None without TLS.

    :param brokers: rows of ``/v1/live-metrics``.
    """
    certificates = [
        (each["days"], each["listener"], broker) for broker in brokers for each in broker["certificates"] or ()
    ]
    if not certificates:
        return None
    days, listener, broker = min(certificates, key=lambda each: each[0])
    count = count_text(int(abs(days)), "day")
    when = f"first expires in {count}" if days >= 0 else f"expired {count} ago"
    text = f"{when} (broker {broker['broker_id']}, listener {listener})"
    return problem_text(text, when=bool(broker["warnings"]))


def _problem_count(partitions: Any) -> Any:
    """Return a number of unhealthy partitions, highlighted unless it is 0."""
    if isinstance(partitions, list):
        partitions = len(partitions)
    return partitions if partitions is None else problem_text(partitions, when=partitions > 0)
