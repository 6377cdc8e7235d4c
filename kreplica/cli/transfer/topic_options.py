"""Options of commands that write records to topics."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from kreplica.cli.records.data_access import Decorator
from kreplica.cli.terminal.parameter_types import KafkaSetting
from kreplica.transfer.topics import TopicCreation

_COUNT = click.IntRange(min=1)

by_key_option = click.option(
    "--by-key",
    is_flag=True,
    help="Choose the partition of each record by its key instead of keeping the original partition.",
)
read_uncommitted_option = click.option(
    "--read-uncommitted", is_flag=True, help="Include records of open and aborted transactions."
)
_replication_factor_option = click.option(
    "--replication-factor", type=_COUNT, help="With --create: replication factor.  [default: the cluster's]"
)
_config_option = click.option(
    "--config", "configs", multiple=True, type=KafkaSetting(), help="With --create: a topic setting."
)


def creation_options(
    *, help_text: str = "Create the topic if it does not exist.", source: str | None = None
) -> Decorator:
    """Add the options for creating a topic; the command receives a ``TopicCreation`` as ``creation``.

    :param source: the topic whose number of partitions is the default of ``--partitions``; None omits this option.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_creation(
            *,
            create: bool,
            replication_factor: int | None,
            configs: tuple[tuple[str, str], ...],
            partition_count: int | None = None,
            **others: Any,
        ) -> Any:
            creation = TopicCreation(create, partition_count, replication_factor, dict(configs))
            return command(creation=creation, **others)

        decorated = _replication_factor_option(_config_option(with_creation))
        if source is not None:
            text = f"With --create: number of partitions.  [default: that of {source}]"
            decorated = click.option("--partitions", "partition_count", type=_COUNT, help=text)(decorated)
        return click.option("--create", is_flag=True, help=help_text)(decorated)

    return decorate
