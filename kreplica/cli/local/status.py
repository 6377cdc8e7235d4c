"""``kreplica status``: show the state of the cluster in a data directory."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from twisted.internet.defer import Deferred, TimeoutError

from kreplica.cli.http.credentials import token_in
from kreplica.cli.http.session import Session, current_runner
from kreplica.cli.local.cluster_process import LOG_FILE, pid_of_cluster
from kreplica.cli.local.stop import data_dir_option, not_running_text
from kreplica.cli.terminal.screen import Screen, count_text, problem_text, time_text
from kreplica.service.standalone.data_directory_lock import READY, ClusterState, cluster_state

STOPPED = "stopped"
RESPONSE_S_MAX = 5.0

PROBLEMS = (
    ("offline_partitions", "offline"),
    ("under_replicated_partitions", "under-replicated"),
    ("under_min_isr_partitions", "below min.insync.replicas"),
)
"""Counts returned by the admin API, and their names in the output."""


@click.command()
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(data_dir: Path, as_json: bool) -> None:
    """Show whether a cluster is running in a data directory, and its process, addresses and health.

    Exit status: 0 if the cluster is ready, 1 if it is stopped, starting, stopping or not responding.
    """
    directory = data_dir.absolute()
    pid = pid_of_cluster(directory)
    if pid is None:
        document: dict[str, Any] = {"state": STOPPED, "data_directory": str(directory), "pid": None}
        click.echo(json.dumps(document, indent=2) if as_json else not_running_text(directory))
        raise SystemExit(1)
    state = cluster_state(directory, pid)
    health, problem = _health(state) if state.state == READY else (None, None)
    log = _log_of(pid, directory)
    if as_json:
        document = asdict(state) | {"data_directory": str(directory), "log": None if log is None else str(log)}
        click.echo(json.dumps(document | {"cluster": health, "problem": problem}, indent=2))
    else:
        _print(Screen(), state, directory, log, health, problem)
    if state.state != READY or problem is not None:
        raise SystemExit(1)


def _log_of(pid: int, directory: Path) -> Path | None:
    """Return the log file of a background cluster; None if the cluster runs in the foreground."""
    log = directory / LOG_FILE
    try:
        return log if Path(f"/proc/{pid}/fd/2").samefile(log) else None
    except OSError:  # the process exited, or belongs to another user
        return None


def _health(state: ClusterState) -> tuple[dict[str, Any] | None, str | None]:
    """Return the admin API's summary of the cluster, or the reason why there is none."""
    if state.admin_url is None:
        return None, None
    security = None if state.security_directory is None else Path(state.security_directory)

    async def work(client: Any) -> Any:
        document = Deferred.fromCoroutine(client.get("/v1/cluster"))
        return await document.addTimeout(RESPONSE_S_MAX, client.reactor)

    try:
        session = Session(
            state.admin_url,
            None if security is None else token_in(security / "admin-token"),
            None if security is None else security / "ca.pem",
            as_json=False,
            run=current_runner(),
        )
        return session.run_with_client(work), None
    except TimeoutError:
        return None, f"no response from {state.admin_url} within {RESPONSE_S_MAX:g} s"
    except click.ClickException as error:
        return None, error.format_message()


def _print(
    screen: Screen,
    state: ClusterState,
    directory: Path,
    log: Path | None,
    health: dict[str, Any] | None,
    problem: str | None,
) -> None:
    health_line = None if health is None else _health_text(health)
    screen.pairs(
        [
            ("state", problem_text(state.state, when=state.state != READY or problem is not None)),
            ("process", state.pid),
            ("since", time_text(state.started_ms)),
            ("brokers", ",".join(state.bootstrap_servers) or None),
            ("admin", None if state.admin_url is None else f"{state.admin_url}/"),
            ("embedded ZooKeeper", state.coordinator),
            ("data", directory),
            ("log", log),
            ("health", health_line if problem is None else problem_text(problem)),
        ]
    )


def _health_text(cluster: dict[str, Any]) -> Any:
    """Describe the health of a running cluster in one line."""
    counts = [(cluster.get(name) or 0, text) for name, text in PROBLEMS]
    problems = [f"{count} {text}" for count, text in counts if count]
    brokers = count_text(len(cluster["live_brokers"]), "live broker")
    partitions = count_text(cluster["partitions"], "partition")
    if problems:
        return problem_text(f"{brokers}; of {partitions}: {', '.join(problems)} (see `kreplica partition list`)")
    return f"{brokers}; {partitions}, all available and in sync"
