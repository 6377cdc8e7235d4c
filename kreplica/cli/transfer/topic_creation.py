"""Topics that records are written to: found, or made on wish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic
from kreplica.cli.http.session import Failed
from kreplica.cli.records.data_access import existing_topic
from kreplica.cli.terminal.parameter_types import Setting
from kreplica.client_core.metadata import TopicView
from kreplica.client_core.topics import BROKERS_DEFAULT


@dataclass(frozen=True, slots=True)
class Making:
    """What a topic is made with, if it is to be made.

    :param create: whether it is.
    :param partitions: None: as the source needs; ``replication_factor`` None: as the cluster's settings say.
    """

    create: bool
    partitions: int | None
    replication_factor: int | None
    configs: dict[str, str]


def making_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that a command gets as one ``Making``."""

    @wraps(function)
    def with_making(
        *,
        create: bool,
        partition_count: int | None,
        replication_factor: int | None,
        configs: tuple[tuple[str, str], ...],
        **others: Any,
    ) -> Any:
        return function(making=Making(create, partition_count, replication_factor, dict(configs)), **others)

    number = click.IntRange(min=1)
    for option in (
        click.option("--config", "configs", multiple=True, type=Setting(), help="With --create: a topic setting."),
        click.option(
            "--replication-factor", type=number, help="With --create: replication factor.  [default: the cluster's]"
        ),
        click.option(
            "--partitions",
            "partition_count",
            type=number,
            help="With --create: number of partitions.  [default: that of the source]",
        ),
        click.option("--create", is_flag=True, help="Create the topic if it does not exist."),
    ):
        with_making = option(with_making)
    return with_making


def find_or_make(cluster: Cluster, name: str, making: Making, partitions: int | None) -> TopicView:
    """The topic, made if need be and wished.

    :param partitions: as many as the source needs; None: as the cluster's settings say.
    :raise Failed: it is not there, and not to be made.
    """
    if not making.create:
        try:
            return existing_topic(cluster, name)
        except Failed as error:
            raise Failed(f"{error.message}: --create makes it") from None
    cluster.retrying(lambda: cluster.refresh((name,)))
    found = cluster.view.topics.get(name)
    if found is not None:
        return found
    count = making.partitions or partitions or BROKERS_DEFAULT
    return create_topic(cluster, name, count, making.replication_factor or BROKERS_DEFAULT, making.configs)
