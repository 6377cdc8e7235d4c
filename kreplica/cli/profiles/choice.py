"""The profile of a command, and the precedence of its values: option, environment variable, profile, default.

The option ``--profile`` itself takes precedence over the variables of the cluster, so that a command never mixes the
profile that it names with another cluster's address. For the same reason, the credentials of a profile are used only
with its addresses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from kreplica.cli.profiles.profile_file import Profile

NO_PROFILE = "none"
"""Name that selects no profile, not even the current one."""

VARIABLE = "KREPLICA_PROFILE"

_NAME, _LOADED, _ANNOUNCED = "kreplica.profile.name", "kreplica.profile.loaded", "kreplica.profile.announced"
"""Keys in click's context."""


def _keep(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    source = context.get_parameter_source(str(parameter.name))
    if source is ParameterSource.COMMANDLINE:
        context.meta[_NAME] = name, True
    elif name is not None:
        context.meta.setdefault(_NAME, (name, False))


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kreplica.cli.profiles.profile_file import read_profiles

    try:
        names = [*read_profiles().by_name, NO_PROFILE]
    except click.ClickException:
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


profile_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--profile",
    metavar="NAME",
    envvar=VARIABLE,
    show_envvar=True,
    expose_value=False,
    callback=_keep,
    shell_complete=_complete,
    help=f"Profile to use (see `kreplica profile list`), or `{NO_PROFILE}` to use no profile.  "
    "[default: the current profile]",
)


def chosen_name() -> str | None:
    """Return the name set by the option or the environment variable; None if neither is set."""
    name: str | None = click.get_current_context().meta.get(_NAME, (None, False))[0]
    return name


def chosen_profile() -> Profile | None:
    """Return the profile of the command; None without one.

    :raise CommandFailed: it does not exist, or the profiles file is invalid.
    """
    meta = click.get_current_context().meta
    if _LOADED not in meta:
        # Imported here so that `kreplica --help` is fast.
        from kreplica.cli.profiles.profile_file import read_profiles

        name = chosen_name()
        profiles = None if name == NO_PROFILE else read_profiles()
        chosen = name or (None if profiles is None else profiles.current)
        meta[_LOADED] = None if profiles is None or chosen is None else profiles.named(chosen)
    loaded: Profile | None = meta[_LOADED]
    return loaded


def is_given(parameter: str) -> bool:
    """Return True if the value of a parameter takes precedence over the profile's."""
    context = click.get_current_context()
    source = context.get_parameter_source(parameter)
    if source is ParameterSource.ENVIRONMENT:
        _, is_option = context.meta.get(_NAME, (None, False))
        return not is_option or chosen_profile() is None
    return source is ParameterSource.COMMANDLINE


def announce(profile: Profile, address: str) -> None:
    """Print which cluster a profile selects to standard error, once per command, unless the output is JSON."""
    _announce(f"profile {profile.name}", address)


def announce_variable(parameter: str, variable: str, address: str) -> None:
    """Print which cluster an environment variable selects, only to a terminal: scripts set the variable themselves."""
    source = click.get_current_context().get_parameter_source(parameter)
    if source is ParameterSource.ENVIRONMENT and sys.stderr.isatty():
        _announce(variable, address)


def _announce(origin: str, address: str) -> None:
    context = click.get_current_context()
    if not context.params.get("as_json") and _ANNOUNCED not in context.meta:
        context.meta[_ANNOUNCED] = True
        click.echo(f"kreplica: {origin} ({address})", err=True)
