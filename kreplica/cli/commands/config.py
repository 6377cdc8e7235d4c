"""``kreplica config``: settings of topics, of one or all brokers, and of client-metrics subscriptions."""

from __future__ import annotations

import click

from kreplica.cli.commands.configs import change_settings, show_settings
from kreplica.cli.http.session import Session, dry_run_option, path_of, with_session
from kreplica.cli.terminal.parameter_types import KafkaSetting

CLIENT_METRICS = "client-metrics"

_KIND = click.argument("kind", type=click.Choice(["topic", "broker", CLIENT_METRICS]))
_NAME = click.argument("name", metavar="NAME|default")


@click.group()
def command() -> None:
    """Settings of a topic (`topic NAME`), one broker (`broker ID`), all brokers (`broker default`) or a client-metrics
    subscription (`client-metrics NAME`)."""


@command.command("get")
@_KIND
@_NAME
@click.argument("names", nargs=-1, metavar="[SETTING]...")
@click.option("--all", "include_defaults", is_flag=True, help="Include settings with their default values.")
@with_session
def get_settings(session: Session, kind: str, name: str, names: tuple[str, ...], include_defaults: bool) -> None:
    """Show the given settings; by default, all settings that differ from their defaults."""
    show_settings(session, _path(kind, name), names, include_defaults=include_defaults)


@command.command("set")
@_KIND
@_NAME
@click.argument("settings", nargs=-1, required=True, type=KafkaSetting(), metavar="SETTING=VALUE...")
@dry_run_option
@with_session
def set_settings(session: Session, kind: str, name: str, settings: tuple[tuple[str, str], ...], dry_run: bool) -> None:
    """Change settings atomically.

    Values may have units: retention.ms=2d, segment.bytes=256MiB.

    \b
    kreplica config set topic orders retention.ms=86400000
    kreplica config set broker default log.cleaner.threads=2
    kreplica config set client-metrics all 'metrics=*' interval.ms=10000
    """
    change_settings(session, _path(kind, name), target=f"{kind} {name}",
                    changes=dict(settings), removals=(), dry_run=dry_run)  # fmt: skip


@command.command("remove")
@_KIND
@_NAME
@click.argument("names", nargs=-1, required=True, metavar="SETTING...")
@dry_run_option
@with_session
def remove_settings(session: Session, kind: str, name: str, names: tuple[str, ...], dry_run: bool) -> None:
    """Reset settings to their defaults.

    A client-metrics subscription is deleted with its last setting.
    """
    change_settings(session, _path(kind, name), target=f"{kind} {name}",
                    changes={}, removals=names, dry_run=dry_run)  # fmt: skip


def _path(kind: str, name: str) -> str:
    if kind == "broker" and name != "default" and not (name.isascii() and name.isdigit()):
        raise click.UsageError(f"{name!r} is not a broker: expected a broker ID or the word default")
    return path_of("configs", kind if kind == CLIENT_METRICS else f"{kind}s", name)
