"""Fetch requests from templates equal those that the schema builds."""

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
    """One whose position is moved by hand: ``end``, ``epoch`` and ``start``."""
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
            "max_wait_ms": CONFIG.wait_ms_max, "min_bytes": CONFIG.bytes_min, "max_bytes": CONFIG.answer_bytes_max,
            "isolation_level": 0, "rack_id": "", **request.fields(by_id=version >= BY_ID_FROM),
        },
    )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_as_built(version: int) -> None:
    """Of one partition, of none, of several, and what is to be forgotten; wherever each of them is."""
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


def test_a_partition_that_is_followed_anew_has_a_form_of_its_own() -> None:
    """In another leader epoch, and as another topic of its name."""
    requests = FetchRequests(2, CONFIG)
    for epoch in (3, 4):
        request = NextRequest(1, epoch, [followed("a", 0, epoch)], [])
        assert requests.build(17, 7, request) == expected(17, 7, request)


def test_what_is_asked_by_form_is_what_an_answer_is_about() -> None:
    """The position that was asked for is noted, however the request was built."""
    requests = FetchRequests(2, CONFIG)
    one = followed("a", 0)
    held: Any = one.partition
    for end in (5, 6):
        held.position = (end, 0)
        requests.build(17, 7, NextRequest(1, 1, [one], []))
        assert one._asked_offset == end


def test_forms_are_bounded_and_forgotten() -> None:
    """With the partitions that are followed no more, and all where there are too many."""
    requests = FetchRequests(2, CONFIG)
    for partition in range(TEMPLATES_MAX + 10):
        requests.build(17, 7, NextRequest(1, 1, [followed("a", partition)], []))
        assert len(requests._templates) <= TEMPLATES_MAX
    for partition in range(TEMPLATES_MAX + 10):
        requests.forget(TopicPartition("a", partition))
    assert not requests._templates
