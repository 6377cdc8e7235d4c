"""``kreplica stop``: stop the cluster in a data directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.local.cluster_process import end_process, pid_of_cluster
from kreplica.service.standalone.data_directory_lock import PID_FILE, stale_pid

data_dir_option = click.option("--data-dir", "-d", type=click.Path(path_type=Path), default=Path("data"),
                               show_default=True, metavar="DIRECTORY",
                               help="Data directory of the cluster.")  # fmt: skip


@click.command()
@data_dir_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=120.0, show_default=True,
              metavar="SECONDS", help="Fail if the cluster has not stopped after this time.")  # fmt: skip
def command(data_dir: Path, timeout_s: float) -> None:
    """Stop the cluster that `kreplica start` started in a data directory, and wait until it has stopped.

    The brokers shut down cleanly, so the next start needs no recovery.  Foreground clusters are stopped too.
    """
    directory = data_dir.absolute()
    pid = pid_of_cluster(directory)
    if pid is None:
        raise CommandFailed(not_running_text(directory))
    if pid == 0:
        raise CommandFailed(f"the cluster in {directory} runs in a container: stop it there")
    started_s = time.monotonic()
    if not end_process(directory, pid, timeout_s):
        raise CommandFailed(
            f"process {pid} is still running after {timeout_s:g} s: wait with `kreplica stop`, or end it with "
            f"`kill -9 {pid}`; the next start then recovers its logs"
        )
    click.echo(f"Stopped the cluster in {directory} (process {pid}) in {time.monotonic() - started_s:.1f} s.")


def not_running_text(directory: Path) -> str:
    """Explain that no cluster is running in a data directory."""
    stale = stale_pid(directory)
    if stale is None:
        return f"no cluster is running in {directory}"
    return (
        f"no cluster is running in {directory}: its process {stale} exited without a clean shutdown.  "
        f"The next start recovers the data; {directory / PID_FILE} is stale, and no process was stopped"
    )
