"""``kreplica profile``: named clusters with their addresses and credentials."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import click

from kreplica.cli.http.session import CommandFailed
from kreplica.cli.local.profile import profile_values
from kreplica.cli.profiles.choice import NO_PROFILE, VARIABLE, chosen_name, profile_option
from kreplica.cli.profiles.profile_file import (
    Profile,
    Profiles,
    check_name,
    profile_of,
    profiles_path,
    read_profiles,
)
from kreplica.cli.terminal.lazy_groups import HELP_OPTIONS
from kreplica.cli.terminal.parameter_types import Setting
from kreplica.cli.terminal.screen import Screen
from kreplica.errors import SettingsError

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_changes_argument = click.argument("changes", nargs=-1, type=Setting(), metavar="[KEY=VALUE]...")


@click.group(context_settings=HELP_OPTIONS)
def command() -> None:
    """Profiles: named clusters with their addresses and credentials.

    All commands use the cluster of the current profile, of --profile NAME, or of KREPLICA_PROFILE, and print its name
    to standard error.  The order of precedence is: (1) options such as --admin, (2) --profile, (3) environment
    variables such as KREPLICA_ADMIN, (4) KREPLICA_PROFILE, (5) the current profile.  The credentials of a profile are
    sent only to its addresses.

    The keys are bootstrap, admin, token-file, user, password-file, ca-file, certificate-file and client-config, like
    the options of commands, and client.NAME for settings of Kafka's Java clients.  The profiles are stored in
    kreplica/profiles.toml in the user's configuration directory; only the user can read the file.
    """


@command.command("list")
@_json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles."""
    profiles = read_profiles()
    if as_json:
        rows = [_document(profile, profiles) for profile in profiles.by_name.values()]
        click.echo(json.dumps({"profiles": rows, "file": str(profiles_path())}, indent=2))
        return
    Screen().table(
        ("PROFILE", "CURRENT", "BROKERS", "ADMIN", "USER"),
        [
            (each.name, each.name == profiles.current, each.bootstrap, each.admin, each.values.get("user"))
            for each in profiles.by_name.values()
        ],
        empty_text="There are no profiles: `kreplica profile create NAME` creates one.",
    )


@command.command()
@click.argument("name", required=False)
@_json_option
@profile_option
def show(name: str | None, as_json: bool) -> None:
    """Show a profile, by default the current one, without secrets."""
    profiles = read_profiles()
    profile = _select(profiles, name)
    if as_json:
        click.echo(json.dumps(_document(profile, profiles), indent=2))
        return
    Screen().pairs(
        [("profile", profile.name), ("current", profile.name == profiles.current), *profile.shown().items()]
    )


@command.command()
@click.argument("name")
@_changes_argument
@click.option("--data-dir", "-d", type=click.Path(path_type=Path), metavar="DIRECTORY",
              help="Copy the addresses and credentials of the cluster that uses this data directory.")  # fmt: skip
def create(name: str, changes: tuple[tuple[str, str], ...], data_dir: Path | None) -> None:
    """Create a profile and make it the current one.

    \b
    kreplica profile create local --data-dir data
    kreplica profile create staging admin=https://kafka-1:8080 bootstrap=kafka-1:9092 ca-file=ca.pem user=ada
    kreplica profile create other bootstrap=kafka:9093 client.security.protocol=SSL
    """
    profiles = read_profiles()
    try:
        check_name(name)
    except ValueError as error:
        raise CommandFailed(f"{name!r}: {error}") from None
    if name in profiles.by_name:
        raise CommandFailed(f"profile {name} already exists: `kreplica profile set` changes it")
    values = {} if data_dir is None else profile_values(data_dir.absolute())
    profile = Profile(name).changed({**values, **dict(changes)})
    if profile.admin is None and profile.bootstrap is None:
        raise click.UsageError("specify at least admin=URL or bootstrap=HOST:PORT,..., or --data-dir")
    _check_client(profile)
    profiles.by_name[name] = profile
    profiles.current = name
    profiles.write()
    click.echo(f"Created profile {name}; it is now the current profile.")


@command.command()
@click.argument("name")
def use(name: str) -> None:
    """Make a profile the current one; `none` clears the current profile."""
    profiles = read_profiles()
    profiles.current = None if name == NO_PROFILE else profiles.named(name).name
    profiles.write()
    click.echo("There is no current profile." if profiles.current is None else f"The current profile is {name}.")


@command.command("set")
@click.argument("changes", nargs=-1, required=True, type=Setting(), metavar="KEY=VALUE...")
@profile_option
def set_values(changes: tuple[tuple[str, str], ...]) -> None:
    """Change values of the current profile, or of --profile; an empty value removes a key.

    \b
    kreplica profile set admin=https://kafka-2:8080
    kreplica profile set --profile staging client.security.protocol=SASL_SSL ca-file=
    """
    profiles = read_profiles()
    profile = _select(profiles, None).changed(dict(changes))
    _replace(profiles, profile)
    click.echo(f"Changed profile {profile.name}.")


@command.command()
@click.argument("name", required=False)
@profile_option
def edit(name: str | None) -> None:
    """Open a profile, by default the current one, in the editor named by $VISUAL or $EDITOR."""
    profiles = read_profiles()
    before = _select(profiles, name)
    text = before.as_text()
    while True:
        edited = click.edit(text, extension=".toml", require_save=True)
        if edited is None or edited == before.as_text():
            click.echo(f"Profile {before.name} is unchanged.")
            return
        try:
            profile = profile_of(before.name, tomllib.loads(edited))
            _replace(profiles, profile)
        except (tomllib.TOMLDecodeError, CommandFailed) as error:
            click.echo(f"kreplica: {error}", err=True)
            click.confirm("Edit again?", abort=True, default=True, err=True)
            text = edited
        else:
            click.echo(f"Changed profile {profile.name}.")
            return


@command.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete a profile; the files that it refers to are kept."""
    profiles = read_profiles()
    del profiles.by_name[profiles.named(name).name]
    if profiles.current == name:
        profiles.current = None
    profiles.write()
    click.echo(f"Deleted profile {name}." + (" There is no current profile." if profiles.current is None else ""))


def _select(profiles: Profiles, name: str | None) -> Profile:
    """Return the profile of an argument, of ``--profile``, or the current one."""
    selected = name or chosen_name() or profiles.current
    if selected is None or selected == NO_PROFILE:
        raise CommandFailed(f"there is no current profile: name one, or set {VARIABLE}")
    return profiles.named(selected)


def _replace(profiles: Profiles, profile: Profile) -> None:
    _check_client(profile)
    profiles.by_name[profile.name] = profile
    profiles.write()


def _check_client(profile: Profile) -> None:
    """Check the settings for connections to brokers, including those in the file ``client-config``.

    :raise CommandFailed: a setting is unknown or invalid, or the file cannot be read.
    """
    # Imported here because it imports the TLS libraries.
    from kreplica.security.client_config import parse_client_config

    try:
        parse_client_config(profile.client_settings())
    except SettingsError as error:
        raise CommandFailed(f"profile {profile.name}: {error}") from None


def _document(profile: Profile, profiles: Profiles) -> dict[str, Any]:
    return {"name": profile.name, "current": profile.name == profiles.current, **profile.shown()}
