"""Fetch requests built from templates equal those built with the schema."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kreplica.model import TopicPartition
from kreplica.replication.follower.fetch_requests import TEMPLATES_MAX, FetchRequests
from kreplica.replication.follower.fetch_session import BY_ID_FROM, NextRequest
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.follower.follower_state import FollowerState
from kreplica.wire.messages import FETCH

CONFIG = FetcherConfig()
VERSIONS = range(12, FETCH.versions[1] + 1)


def followed(topic: str, partition: int, leader_epoch: int = 3) -> FollowerState:
    """Return a follower state whose position (``end``, ``epoch`` and ``start``) the test sets."""
    log: Any = SimpleNamespace(log_start_offset=0)
    held: Any = SimpleNamespace(
        topic_partition=TopicPartition(topic, partition),
        topic_id=UUID(int=(len(topic) << 64) + 1),
        leadership=SimpleNamespace(leader_epoch=leader_epoch),
        log=log,
        position=(0, -1),
    )
    held.fetch_position = lambda: held.position
    return FollowerState(held, 1000)


def move(one: FollowerState, chance: random.Random) -> None:
    held: Any = one.partition
    held.position = (chance.choice([0, 1, 2**40, 2**63 - 1]), chance.choice([-1, 0, 7]))
    held.log.log_start_offset = chance.choice([0, 5, 2**40])


def expected(version: int, broker_epoch: int, request: NextRequest[FollowerState]) -> bytes:
    return FETCH.request.build(
        version,
        {
            "replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": broker_epoch},
            "max_wait_ms": CONFIG.wait_ms_max, "min_bytes": CONFIG.bytes_min, "max_bytes": CONFIG.response_bytes_max,
            "isolation_level": 0, "rack_id": "", **request.fields(by_id=version >= BY_ID_FROM),
        },
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_template_equals_built_request(version: int) -> None:
    """The requests contain no, one or several partitions at any positions, with and without forgotten topics."""
    chance = random.Random(version)
    requests = FetchRequests(2, CONFIG)
    known = [followed(topic, partition) for topic in ("a", "topic") for partition in (0, 1)]
    broker_epoch = 7
    for number in range(300):
        for one in known:
            move(one, chance)
        named = chance.sample(known, chance.choice([0, 1, 1, 1, 1, 2, 4]))
        forgotten = [(known[0].key, UUID(int=9))] if chance.random() < 0.1 else []
        request = NextRequest(chance.randrange(2**31), chance.randrange(2**31), named, forgotten)
        if number % 50 == 49:
            broker_epoch += 1
        for each in (version, chance.choice(VERSIONS)):
            assert requests.build(each, broker_epoch, request) == expected(each, broker_epoch, request)


def test_each_leader_epoch_has_its_own_template() -> None:
    """A recreated topic with the same name also has its own template."""
    requests = FetchRequests(2, CONFIG)
    for epoch in (3, 4):
        request = NextRequest(1, epoch, [followed("a", 0, epoch)], [])
        assert requests.build(17, 7, request) == expected(17, 7, request)


def test_requested_position_is_recorded() -> None:
    """The position is recorded for requests from templates and for built ones."""
    requests = FetchRequests(2, CONFIG)
    one = followed("a", 0)
    held: Any = one.partition
    for end in (5, 6):
        held.position = (end, 0)
        requests.build(17, 7, NextRequest(1, 1, [one], []))
        assert one._requested_offset == end


def test_templates_are_bounded_and_removed() -> None:
    """Templates of partitions that are no longer followed are removed; if there are too many, all are removed."""
    requests = FetchRequests(2, CONFIG)
    for partition in range(TEMPLATES_MAX + 10):
        requests.build(17, 7, NextRequest(1, 1, [followed("a", partition)], []))
        assert len(requests._templates) <= TEMPLATES_MAX
    for partition in range(TEMPLATES_MAX + 10):
        requests.forget(TopicPartition("a", partition))
    assert not requests._templates
