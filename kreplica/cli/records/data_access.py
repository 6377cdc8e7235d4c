"""Shared parts of the commands that read and write records: broker addresses, codec, Ctrl-C and errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

import click
from click.core import ParameterSource

from kreplica.blocking import Cluster
from kreplica.cli.http.session import INTERRUPTED, CommandFailed, admin_session, optional_admin_options
from kreplica.cli.profiles.choice import announce, announce_variable, chosen_profile, is_given
from kreplica.cli.profiles.profile_file import Profile
from kreplica.client_core.addresses import parse_addresses
from kreplica.client_core.errors import ClientError
from kreplica.client_core.options import ClientOptions
from kreplica.errors import SettingsError, reason_of
from kreplica.settings.properties import parse_properties
from kreplica.transfer.topics import TopicUnusable
from kreplica.wire.compression import Codec

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_CONFIG_KEY = "kreplica.client-config."
"""Prefix of the keys of configuration files in click's context."""

_PROFILE_KEY = "kreplica.bootstrap-profile"
"""Key, in click's context, of the profile that supplied the broker addresses."""

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def check_addresses(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Click callback: validate the addresses of an option."""
    if text is not None:
        try:
            parse_addresses(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return text


def _keep_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    prefix = parameter.opts[0].removeprefix("--").removesuffix("client-config")
    context.meta[f"{_CONFIG_KEY}{prefix}"] = path


def brokers_option(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.", **attributes: Any) -> Decorator:
    """Return an option for broker addresses, without a default."""
    return click.option(name, callback=check_addresses, metavar="HOST:PORT,...", help=purpose, **attributes)


def client_config_option(prefix: str = "") -> Decorator:
    """Return an option for the security settings of connections; ``open_cluster`` with the same prefix reads them."""
    return click.option(
        f"--{prefix}client-config",
        envvar="KREPLICA_CLIENT_CONFIG",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_keep_config,
        expose_value=False,
        is_eager=True,
        help="Properties file with the security settings of Kafka's Java clients: security.protocol, ssl.*, sasl.*.",
    )


def bootstrap_option(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.") -> Decorator:
    """Return an option for broker addresses, and the options of the admin API that returns them by default."""
    parameter = _parameter(name)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_brokers(*, url: str | None, token: str | None, ca_file: Path | None, **others: Any) -> Any:
            others[parameter] = resolve_bootstrap(parameter, others[parameter], url, token, ca_file)
            return command(**others)

        return bootstrap_option_only(name, purpose)(optional_admin_options(with_brokers, name))

    return decorate


def bootstrap_option_only(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.") -> Decorator:
    """Return an option for broker addresses only, for a command that calls ``resolve_bootstrap`` itself."""
    default = f"from the admin API of --admin or KREPLICA_ADMIN, else from the profile, else {DEFAULT_BOOTSTRAP}"
    return brokers_option(name, f"{purpose}  [default: {default}]", envvar="KREPLICA_BOOTSTRAP", show_envvar=True)


def resolve_bootstrap(
    parameter: str, addresses_given: str | None, url: str | None, token: str | None, ca_file: Path | None
) -> str:
    """Return the addresses of the brokers to use.

    Options take precedence over environment variables, and both over the profile. If both are options, or both are
    environment variables, the addresses take precedence over the admin API.

    :param parameter: click parameter of the addresses; ``addresses_given`` is its value.
    :param url: URL of the admin API.
    :raise CommandFailed: the admin API reports no live brokers.
    """
    source = click.get_current_context().get_parameter_source
    has_addresses, has_url = is_given(parameter), is_given("url")
    if not has_addresses and not has_url and (profile := chosen_profile()) is not None:
        return _bootstrap_of_profile(profile)
    prefers_url = source("url") is ParameterSource.COMMANDLINE and source(parameter) is ParameterSource.ENVIRONMENT
    if url is not None and has_url and (not has_addresses or prefers_url):
        return _brokers_of(url, token, ca_file)
    if addresses_given is None or not has_addresses:
        return DEFAULT_BOOTSTRAP
    announce_variable(parameter, "KREPLICA_BOOTSTRAP", addresses_given)
    return addresses_given


def given_or_profile_bootstrap(addresses_given: str | None) -> str | None:
    """Return the addresses of ``--bootstrap`` or its variable, otherwise the profile's; None if neither is set."""
    profile = None if is_given("bootstrap") else chosen_profile()
    return addresses_given if profile is None else _bootstrap_of_profile(profile)


def _bootstrap_of_profile(profile: Profile) -> str:
    """Return the brokers of a profile; from then on, its security settings are used."""
    click.get_current_context().meta[_PROFILE_KEY] = profile
    if profile.bootstrap is not None:
        announce(profile, profile.bootstrap)
        return profile.bootstrap
    return _brokers_of(str(profile.admin), None, None)


def _brokers_of(url: str, token: str | None, ca_file: Path | None) -> str:
    """Return one address of each live broker: that of the listener PLAINTEXT if it exists, otherwise the first one."""
    document = admin_session(url, token, ca_file, as_json=False).get("/v1/brokers")
    addresses = []
    for broker in document["brokers"]:
        endpoints = dict(endpoint.split("://", 1) for endpoint in broker["endpoints"]) if broker["live"] else {}
        if endpoints:
            addresses.append(endpoints.get("PLAINTEXT") or next(iter(endpoints.values())))
    if not addresses:
        raise CommandFailed(f"the admin API at {url} reports no live brokers: use --bootstrap")
    return ",".join(addresses)


codec_option = click.option(
    "--codec",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    callback=lambda _, __, name: Codec[name.upper()],
    help="Compression codec of batches.",
)


def open_cluster(bootstrap: str, prefix: str = "") -> Cluster:
    """Return a new cluster client.

    :param prefix: prefix of the options of this cluster, such as ``from-``.
    :raise CommandFailed: the file of ``--client-config`` is invalid.
    """
    options = ClientOptions(client_id="kreplica-cli")
    config = client_config(prefix)
    if not config:
        return Cluster(bootstrap, options=options)
    # Imported here because it imports the TLS libraries.
    from kreplica.blocking.secured_runtime import secured_runtime

    try:
        return Cluster(bootstrap, options=options, runtime=secured_runtime(config))
    except SettingsError as error:
        path, profile = _config_path(prefix), _security_profile(prefix)
        origin = f"profile {profile.name}" if path is None and profile else f"--{prefix}client-config {path}"
        raise CommandFailed(f"{origin}: {error}") from None


def client_config(prefix: str = "") -> dict[str, str]:
    """Return the settings in the file of ``--client-config``, or of the profile; empty if neither is set.

    :param prefix: see ``open_cluster``.
    :raise CommandFailed: the file cannot be read.
    """
    path = _config_path(prefix)
    if path is None:
        profile = _security_profile(prefix)
        return {} if profile is None else dict(profile.client_settings())
    try:
        entries = parse_properties(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        raise CommandFailed(f"--{prefix}client-config {path}: {reason_of(error)}") from None
    return {name: entry.value for name, entry in entries.items()}


def _config_path(prefix: str) -> Path | None:
    """Return the file of ``--client-config``; None if the profile takes precedence or there is none."""
    path: Path | None = click.get_current_context().meta.get(f"{_CONFIG_KEY}{prefix}")
    return path if is_given(_parameter(f"{prefix}client-config")) else None


def _security_profile(prefix: str) -> Profile | None:
    """Return the profile that supplied the broker addresses; None if an option supplied them."""
    profile: Profile | None = click.get_current_context().meta.get(_PROFILE_KEY)
    return None if is_given(_parameter(f"{prefix}bootstrap")) else profile


def _parameter(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


@contextmanager
def report_failures(state: Callable[[], str]) -> Iterator[None]:
    """Convert Ctrl-C and errors in the block to an exit status and a message that contains the state of the work.

    If a program that reads standard output, such as ``head``, has closed the pipe, the command exits with status 0.

    :param state: describes the work done so far.
    """
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"kreplica: interrupted: {state()}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # Python flushes standard output at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except TopicUnusable as error:
        raise CommandFailed(str(error)) from None
    except ClientError as error:
        raise CommandFailed(f"{error} ({state()})") from error
