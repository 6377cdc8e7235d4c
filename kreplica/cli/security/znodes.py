"""``kreplica znodes``: protect the znodes of a cluster, or remove the protection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kreplica.cli.http.session import CommandFailed

_config = click.option(
    "--config",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file of a broker, with the ZooKeeper servers and the user or certificate.",
)


@click.group()
def command() -> None:
    """ACLs of the cluster's znodes in ZooKeeper."""


@command.command(short_help="Apply the ACLs of zookeeper.set.acl=true.")
@_config
def protect(config: Path) -> None:
    """Give all znodes of the cluster the ACLs that new znodes get with zookeeper.set.acl=true.

    All brokers must already authenticate to ZooKeeper as the same user, and should create new znodes with ACLs
    (zookeeper.set.acl=true). Repeat the command if a broker without that setting was running.
    """
    from kreplica.membership.znode_protection.acls import protected_acl

    count = _replace(config, protected_acl, needs_user=True)
    click.echo(f"{count} znodes are protected.")


@command.command()
@_config
def unprotect(config: Path) -> None:
    """Let everyone change all znodes of the cluster again.

    First set zookeeper.set.acl=false on all brokers and restart them.
    """
    from kreplica.zookeeper import OPEN_ACL

    count = _replace(config, lambda _: OPEN_ACL, needs_user=False)
    click.echo(f"{count} znodes are open to everyone.")


def _replace(config: Path, acl_of: Callable[[str], tuple[Any, ...]], *, needs_user: bool) -> int:
    """Replace the ACLs; return the number of znodes."""
    # Imported here because they import the reactor.
    from kreplica.cli.terminal.running import run
    from kreplica.errors import KreplicaError, SettingsError
    from kreplica.membership.znode_protection.migration import replace_acls
    from kreplica.runtime import real_runtime
    from kreplica.service.broker.zookeeper_clients import ZooKeeperClients
    from kreplica.settings.broker_settings import load

    async def work(reactor: Any) -> int:
        runtime = real_runtime(reactor)
        client = ZooKeeperClients(runtime, settings).new()
        try:
            await client.start()
            return await replace_acls(client, acl_of)
        finally:
            await client.close()
            runtime.offload.stop()

    try:
        settings = load(config, ["zookeeper.set.acl=true"] if needs_user else [])
        return run(work)
    except SettingsError as error:
        raise CommandFailed(str(error)) from None
    except KreplicaError as error:
        raise CommandFailed(f"ZooKeeper: {error}") from None
