"""``kreplica topic config``: the settings of a topic."""

from __future__ import annotations

import click

from kreplica.cli.commands.configs import change_settings, show_settings
from kreplica.cli.http.session import Session, dry_run_option, path_of, with_session
from kreplica.cli.terminal.parameter_types import KafkaSetting

_TOPIC = click.argument("topic")


@click.group()
def command() -> None:
    """Settings of a topic."""


@command.command("get")
@_TOPIC
@click.argument("names", nargs=-1, metavar="[SETTING]...")
@click.option("--all", "include_defaults", is_flag=True, help="Include settings with their default values.")
@with_session
def get_settings(session: Session, topic: str, names: tuple[str, ...], include_defaults: bool) -> None:
    """Show the given settings of a topic; by default, all settings that differ from their defaults."""
    show_settings(session, path_of("configs", "topics", topic), names, include_defaults=include_defaults)


@command.command("set")
@_TOPIC
@click.argument("settings", nargs=-1, required=True, type=KafkaSetting(), metavar="SETTING=VALUE...")
@dry_run_option
@with_session
def set_settings(session: Session, topic: str, settings: tuple[tuple[str, str], ...], dry_run: bool) -> None:
    """Change settings of a topic atomically.

    Values may have units: retention.ms=2d, segment.bytes=256MiB.
    """
    change_settings(session, path_of("configs", "topics", topic), target=f"topic {topic}",
                    changes=dict(settings), removals=(), dry_run=dry_run)  # fmt: skip


@command.command("remove")
@_TOPIC
@click.argument("names", nargs=-1, required=True, metavar="SETTING...")
@dry_run_option
@with_session
def remove_settings(session: Session, topic: str, names: tuple[str, ...], dry_run: bool) -> None:
    """Reset settings of a topic to their defaults."""
    change_settings(session, path_of("configs", "topics", topic), target=f"topic {topic}",
                    changes={}, removals=names, dry_run=dry_run)  # fmt: skip
