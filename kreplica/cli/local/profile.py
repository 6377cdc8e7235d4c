"""Profile values for the cluster in a data directory."""

from __future__ import annotations

from pathlib import Path

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.local.cluster_process import pid_of_cluster
from kreplica.cli.local.stop import not_running_text
from kreplica.service.standalone.data_directory_lock import READY, cluster_state


def profile_values(directory: Path) -> dict[str, str]:
    """Return the addresses by profile key; for a secured cluster, also the credentials of the user ``admin``.

    :raise CommandFailed: no cluster is running in the directory, or it is not ready.
    """
    pid = pid_of_cluster(directory)
    if pid is None:
        raise CommandFailed(not_running_text(directory))
    state = cluster_state(directory, pid)
    if state.state != READY:
        raise CommandFailed(f"the cluster in {directory} is not ready: it is {state.state}")
    values = {"bootstrap": ",".join(state.bootstrap_servers)}
    if state.admin_url is not None:
        values["admin"] = state.admin_url
    if state.security_directory is not None:
        security = Path(state.security_directory)
        values |= {
            "ca-file": str(security / "ca.pem"),
            "user": "admin",
            "password-file": str(security / "admin-password"),
            "client-config": str(security / "admin.properties"),
        }
    return values
