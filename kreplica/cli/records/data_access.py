"""What the commands that read and write records have in common: brokers, Ctrl-C, pipes that close, errors."""

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
from kreplica.cli.http.session import Failed, admin_session, optional_admin_options
from kreplica.client_core.addresses import parse_addresses
from kreplica.client_core.errors import BrokerRefused, ClientError, GaveUp
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.options import ClientOptions
from kreplica.errors import ErrorCode
from kreplica.wire.compression import Codec

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the signal's number, as shells have it."""

TOPIC_WAIT_S = 3.0

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def check_addresses(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Of an option, before anything is done."""
    if text is not None:
        try:
            parse_addresses(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return text


def brokers_option(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.", **more: Any) -> Decorator:
    """Addresses of brokers; None unless the user names some."""
    return click.option(name, callback=check_addresses, metavar="HOST:PORT,...", help=purpose, **more)


def bootstrap_option(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.") -> Decorator:
    """Addresses of the cluster's brokers, with a default, and the options of the admin API that may name them."""
    parameter = name.lstrip("-").replace("-", "_")

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def found(*, url: str | None, token: str | None, ca_file: Path | None, **others: Any) -> Any:
            others[parameter] = chosen_brokers(parameter, others[parameter], url, token, ca_file)
            return command(**others)

        return own_brokers_option(name, purpose)(optional_admin_options(found))

    return decorate


def own_brokers_option(name: str = "--bootstrap", purpose: str = "Bootstrap brokers.") -> Decorator:
    """The option alone, for a command that calls ``chosen_brokers`` itself."""
    default = f"those that the admin API of --admin or KREPLICA_ADMIN names, else {DEFAULT_BOOTSTRAP}"
    return brokers_option(name, f"{purpose}  [default: {default}]", envvar="KREPLICA_BOOTSTRAP", show_envvar=True)


def chosen_brokers(
    parameter: str, given: str | None, url: str | None, token: str | None, ca_file: Path | None
) -> str:
    """Addresses of the brokers of the cluster that the user means.

    An option counts more than an environment variable; of two of a kind, the addresses count more than the admin API.

    :param parameter: the click parameter of the addresses.
    :param given: its value.
    :param url: the admin API.
    :raise Failed: the admin API names no broker.
    """
    source = click.get_current_context().get_parameter_source
    named = source("url") not in (None, ParameterSource.DEFAULT)
    typed = source("url") is ParameterSource.COMMANDLINE and source(parameter) is ParameterSource.ENVIRONMENT
    if url is not None and named and (given is None or typed):
        return _brokers_of(url, token, ca_file)
    return given or DEFAULT_BOOTSTRAP


def _brokers_of(url: str, token: str | None, ca_file: Path | None) -> str:
    """One address of each live broker: of its listener called PLAINTEXT if it has one, else of its first."""
    document = admin_session(url, token, ca_file, as_json=False).get("/v1/brokers")
    addresses = []
    for broker in document["brokers"]:
        endpoints = dict(endpoint.split("://", 1) for endpoint in broker["endpoints"]) if broker["live"] else {}
        if endpoints:
            addresses.append(endpoints.get("PLAINTEXT") or next(iter(endpoints.values())))
    if not addresses:
        raise Failed(f"the admin API at {url} names no live broker: give --bootstrap")
    return ",".join(addresses)


codec_option = click.option(
    "--codec",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    callback=lambda _, __, name: Codec[name.upper()],
    help="Compression codec of batches.",
)


def open_cluster(bootstrap: str) -> Cluster:
    """A cluster for one command."""
    return Cluster(bootstrap, options=ClientOptions(client_id="kreplica-cli"))


def existing_topic(cluster: Cluster, name: str) -> TopicView:
    """A topic that the user named.

    :raise Failed: there is none.
    """
    try:
        return cluster.find_topic(name, TOPIC_WAIT_S)
    except GaveUp as error:
        cause = error.__cause__
        if isinstance(cause, BrokerRefused) and cause.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failed(f"there is no topic {name!r}") from None
        raise


@contextmanager
def accounted(done: Callable[[], str]) -> Iterator[None]:
    """Whatever ends the work says what was done until then.

    Ctrl-C ends it in order; a closed pipe, as by ``head``, without a word.

    :param done: tells it, for people.
    """
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"kreplica: interrupted: {done()}", err=True)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # Nobody reads: what Python would flush at its end goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except ClientError as error:
        raise Failed(f"{error} ({done()})") from error
