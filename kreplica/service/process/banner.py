"""Formats the startup banner: addresses, the data directory, how to stop, and first commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """Addresses and directories of a running cluster on this machine.

    :param bootstrap_servers: HOST:PORT of each broker.
    :param admin_url: URL of the admin API; None if it is disabled.
    :param coordinator: HOST:PORT of the embedded ZooKeeper server.
    :param security_directory: directory with the secrets of a secured cluster; None for an open one.
    """

    bootstrap_servers: list[str]
    admin_url: str | None
    coordinator: str
    data_directory: str
    security_directory: str | None = None


def banner(version: str, addresses: ClusterAddresses, python: str, *, log_file: str | None = None) -> str:
    """Return the text to print when a cluster is ready.

    :param python: version of the interpreter, and whether it is optimized.
    :param log_file: log file of a cluster in the background; None for one in the foreground, which Ctrl-C stops.
    """
    admin_url, security = addresses.admin_url, addresses.security_directory
    stop = f"kreplica stop --data-dir {shlex.quote(addresses.data_directory)}"
    rows = [
        ("brokers", f"{','.join(addresses.bootstrap_servers)}    (bootstrap.servers of any Kafka client)"),
        ("admin", f"{admin_url}/    (dashboard in a browser, REST API)" if admin_url else "off"),
        ("zookeeper", f"{addresses.coordinator}    (embedded ZooKeeper-compatible server)"),
        ("data", addresses.data_directory),
        ("python", python),
    ]
    if log_file is not None:
        rows.append(("log", log_file))
    if security is not None:
        rows.append(("user", f"admin    (password: {security}/admin-password)"))
    rows.append(("stop", "Ctrl-C" if log_file is None else stop))
    lines = [f"kreplica {version} is ready", ""]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    lines += [
        "",
        f"  {'In another terminal, write' if log_file is None else 'Write'} some lines and read them back:",
        "",
        *_first_commands(addresses.bootstrap_servers[0], admin_url, security),
        "",
        "  Topics are created on first use.",
        "",
    ]
    return "\n".join(lines) + "\n"


def _first_commands(server: str, admin_url: str | None, security_directory: str | None) -> list[str]:
    if security_directory is None:
        return [
            f"    printf 'hello\\nworld\\n' | kcat -b {server} -t greetings -P",
            f"    kcat -b {server} -t greetings -C -e",
        ]
    place = security_directory
    return [
        f"    export KREPLICA_ADMIN={admin_url} KREPLICA_CA_FILE={place}/ca.pem",
        f"    export KREPLICA_USER=admin KREPLICA_PASSWORD_FILE={place}/admin-password",
        f"    export KREPLICA_BOOTSTRAP={server} KREPLICA_CLIENT_CONFIG={place}/admin.properties",
        "    kreplica topic create greetings",
        "    printf 'hello\\nworld\\n' | kreplica produce greetings",
        "    kreplica consume greetings",
    ]
