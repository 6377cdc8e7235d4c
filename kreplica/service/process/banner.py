"""Formats the start-up banner: addresses, the data directory and first commands."""

from __future__ import annotations

from collections.abc import Sequence


def banner(
    version: str, bootstrap_servers: Sequence[str], admin_url: str | None, coordinator: str, data_directory: str
) -> str:
    """Return the text that ``standalone`` prints when it is ready."""
    servers = ",".join(bootstrap_servers)
    rows = [
        ("brokers", f"{servers}    (bootstrap.servers of any Kafka client)"),
        ("admin", f"{admin_url}/    (dashboard in a browser, REST API)" if admin_url else "off"),
        ("coordinator", f"{coordinator}    (ZooKeeper protocol)"),
        ("data", data_directory),
    ]
    lines = [f"kreplica {version} is ready", ""]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    lines += [
        "",
        "  In another terminal, write some lines and read them back:",
        "",
        f"    printf 'hello\\nworld\\n' | kcat -b {bootstrap_servers[0]} -t greetings -P",
        f"    kcat -b {bootstrap_servers[0]} -t greetings -C -e",
        "",
        "  Topics are created on first use.  Ctrl-C stops all brokers.",
        "",
    ]
    return "\n".join(lines) + "\n"
