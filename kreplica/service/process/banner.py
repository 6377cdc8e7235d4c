"""Formats the start-up banner: addresses, the data directory and first commands."""

from __future__ import annotations

from collections.abc import Sequence


def banner(
    version: str,
    bootstrap_servers: Sequence[str],
    admin_url: str | None,
    coordinator: str,
    data_directory: str,
    security_directory: str | None = None,
) -> str:
    """Return the text that ``standalone`` prints when it is ready.

    :param security_directory: directory with the secrets of a secured cluster; None for an open one.
    """
    servers = ",".join(bootstrap_servers)
    rows = [
        ("brokers", f"{servers}    (bootstrap.servers of any Kafka client)"),
        ("admin", f"{admin_url}/    (dashboard in a browser, REST API)" if admin_url else "off"),
        ("coordinator", f"{coordinator}    (ZooKeeper protocol)"),
        ("data", data_directory),
    ]
    if security_directory is not None:
        rows.append(("user", f"admin    (password: {security_directory}/admin-password)"))
    lines = [f"kreplica {version} is ready", ""]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    lines += [
        "",
        "  In another terminal, write some lines and read them back:",
        "",
        *_first_commands(bootstrap_servers[0], admin_url, security_directory),
        "",
        "  Topics are created on first use.  Ctrl-C stops all brokers.",
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
