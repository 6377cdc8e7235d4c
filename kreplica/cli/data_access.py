"""What the commands that read and write records have in common: brokers, Ctrl-C, pipes that close, errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import click

from kreplica.blocking import Cluster
from kreplica.cli.session import Failed
from kreplica.errors import ErrorCode
from kreplica.sansio.addresses import parse_addresses
from kreplica.sansio.errors import BrokerRefused, ClientError, GaveUp
from kreplica.sansio.options import ClientOptions
from kreplica.sansio.views import TopicView
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


def bootstrap_option(name: str = "--bootstrap", purpose: str = "Brokers to ask first.", **more: Any) -> Decorator:
    """Where the cluster is."""
    settings: dict[str, Any] = {"default": DEFAULT_BOOTSTRAP, "show_default": True, "envvar": "KREPLICA_BOOTSTRAP"}
    settings |= more
    return click.option(name, callback=check_addresses, metavar="HOST:PORT,...", help=purpose, **settings)


codec_option = click.option(
    "--codec",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
    callback=lambda _, __, name: Codec[name.upper()],
    help="How batches are compressed.",
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
