"""What a broker knows of the cluster, from what controllers tell it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from twisted.internet.task import Clock

from kreplica.model import LEADER_DURING_DELETE
from kreplica.server.metadata.metadata_cache import WHOLE, MetadataCache

IDS = {name: UUID(int=number) for number, name in enumerate(("a", "b", "c", "d"), 1)}


def told(*topics: str, leader: int = 1, **more: Any) -> dict[str, Any]:
    """An UpdateMetadata of topics with one partition each."""
    row = {"partition_index": 0, "leader": leader, "leader_epoch": 0, "replicas": [1], "isr": [1]}
    states = [{"topic_name": topic, "topic_id": IDS[topic], "partition_states": [row]} for topic in topics]
    return {"controller_id": 1, "live_brokers": [], "topic_states": states, **more}


def piece(number: int, count: int, *topics: str) -> dict[str, Any]:
    return told(*topics, type=WHOLE, part=number, parts=count)


@pytest.fixture
def metadata() -> MetadataCache:
    made: MetadataCache = MetadataCache(Clock())  # type: ignore[arg-type]
    made.update(told("a", "b", "c"))
    return made


def test_news_are_added(metadata: MetadataCache) -> None:
    """Whatever is not spoken of stays as it was."""
    assert metadata.update(told("d")) == []
    assert set(metadata.topics) == {"a", "b", "c", "d"}


def test_a_deleted_topic_goes(metadata: MetadataCache) -> None:
    """Its name and its id mean nothing any more."""
    assert metadata.update(told("b", leader=LEADER_DURING_DELETE)) == ["b"]
    assert set(metadata.topics) == {"a", "c"}
    assert metadata.name_of(IDS["b"]) is None


def test_what_says_everything_takes_away_the_rest(metadata: MetadataCache) -> None:
    """A controller that deleted a topic may have died before it told; its successor does not know the topic."""
    assert metadata.update(piece(0, 1, "a", "d")) == ["b", "c"]
    assert set(metadata.topics) == {"a", "d"}
    assert metadata.name_of(IDS["c"]) is None


def test_everything_in_several_pieces(metadata: MetadataCache) -> None:
    """Nothing goes before the last of them; one that is sent again, since its answer was lost, changes nothing."""
    assert metadata.update(piece(0, 3, "a")) == []
    assert metadata.update(piece(1, 3, "d")) == []
    assert metadata.update(piece(1, 3, "d")) == []
    assert set(metadata.topics) == {"a", "b", "c", "d"}
    assert metadata.update(piece(2, 3, "a")) == ["b", "c"]
    assert metadata.update(piece(2, 3, "a")) == []
    assert set(metadata.topics) == {"a", "d"}


def test_a_controller_that_dies_between_two_pieces(metadata: MetadataCache) -> None:
    """Its successor begins anew; pieces of both are not put together."""
    metadata.update(piece(0, 2, "a"))
    metadata.update(piece(0, 2, "b"))
    assert metadata.update(piece(1, 2, "c")) == ["a"]


def test_no_topics_at_all(metadata: MetadataCache) -> None:
    """The last topic was deleted."""
    assert metadata.update(piece(0, 1)) == ["a", "b", "c"]
    assert metadata.topics == {}


def test_who_asks_is_told_of_topics_that_are_gone(metadata: MetadataCache) -> None:
    """Whoever keeps something by a topic's name hears of its end, also where another has its name at once."""
    gone: list[str] = []
    metadata.on_topics_removed(gone.extend)
    metadata.update(told("d"))
    assert gone == []
    metadata.update(told("b", leader=LEADER_DURING_DELETE))
    assert gone == ["b"]
    made_again = told("a")
    made_again["topic_states"][0]["topic_id"] = UUID(int=99)
    metadata.update(made_again)
    assert gone == ["b", "a"]
    metadata.update(piece(0, 1, "d"))
    assert gone == ["b", "a", "a", "c"]


def test_what_is_not_known_need_not_be_gone(metadata: MetadataCache) -> None:
    """Only when all pieces have come does a topic that is not there not exist."""
    assert not metadata.is_complete
    metadata.update(piece(0, 2, "a"))
    assert not metadata.is_complete
    metadata.update(piece(1, 2, "b"))
    assert metadata.is_complete


def test_a_broker_that_was_told_nothing_is_empty() -> None:
    """Until a controller has named a topic, or has said that there is none, no topic can be said to be unknown."""
    fresh: MetadataCache = MetadataCache(Clock())  # type: ignore[arg-type]
    fresh.update(told())
    assert fresh.is_empty, "brokers alone say nothing of topics"
    fresh.update(piece(0, 1))
    assert not fresh.is_empty


def test_one_topic_is_enough_to_know_of_others(metadata: MetadataCache) -> None:
    """A controller that never says everything at once, such as Kafka's, names topics all the same."""
    assert not metadata.is_complete
    assert not metadata.is_empty
