"""The metadata cache that a broker fills from UpdateMetadata requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from twisted.internet.task import Clock

from kreplica.model import LEADER_DURING_DELETE
from kreplica.server.metadata.metadata_cache import FULL, MetadataCache

IDS = {name: UUID(int=number) for number, name in enumerate(("a", "b", "c", "d"), 1)}


def update_metadata(*topics: str, leader: int = 1, **more: Any) -> dict[str, Any]:
    """Return an UpdateMetadata with one partition per topic."""
    row = {"partition_index": 0, "leader": leader, "leader_epoch": 0, "replicas": [1], "isr": [1]}
    states = [{"topic_name": topic, "topic_id": IDS[topic], "partition_states": [row]} for topic in topics]
    return {"controller_id": 1, "live_brokers": [], "topic_states": states, **more}


def part(number: int, count: int, *topics: str) -> dict[str, Any]:
    return update_metadata(*topics, type=FULL, part=number, parts=count)


@pytest.fixture
def metadata() -> MetadataCache:
    made: MetadataCache = MetadataCache(Clock())  # type: ignore[arg-type]
    made.update(update_metadata("a", "b", "c"))
    return made


def test_topics_are_added(metadata: MetadataCache) -> None:
    """Topics that are not in a request stay unchanged."""
    assert metadata.update(update_metadata("d")) == []
    assert set(metadata.topics) == {"a", "b", "c", "d"}


def test_deleted_topic_is_removed(metadata: MetadataCache) -> None:
    """Neither its name nor its ID is known."""
    assert metadata.update(update_metadata("b", leader=LEADER_DURING_DELETE)) == ["b"]
    assert set(metadata.topics) == {"a", "c"}
    assert metadata.name_of(IDS["b"]) is None


def test_full_update_removes_other_topics(metadata: MetadataCache) -> None:
    """A controller may crash between deleting a topic and announcing this; its successor does not know the topic."""
    assert metadata.update(part(0, 1, "a", "d")) == ["b", "c"]
    assert set(metadata.topics) == {"a", "d"}
    assert metadata.name_of(IDS["c"]) is None


def test_full_update_in_several_parts(metadata: MetadataCache) -> None:
    """Topics are removed only with the last part; a part that is sent again after a lost response changes nothing."""
    assert metadata.update(part(0, 3, "a")) == []
    assert metadata.update(part(1, 3, "d")) == []
    assert metadata.update(part(1, 3, "d")) == []
    assert set(metadata.topics) == {"a", "b", "c", "d"}
    assert metadata.update(part(2, 3, "a")) == ["b", "c"]
    assert metadata.update(part(2, 3, "a")) == []
    assert set(metadata.topics) == {"a", "d"}


def test_controller_that_crashes_between_two_parts(metadata: MetadataCache) -> None:
    """The next controller starts with the first part; parts from both are not combined."""
    metadata.update(part(0, 2, "a"))
    metadata.update(part(0, 2, "b"))
    assert metadata.update(part(1, 2, "c")) == ["a"]


def test_update_without_topics(metadata: MetadataCache) -> None:
    """The update removes the last topic."""
    assert metadata.update(part(0, 1)) == ["a", "b", "c"]
    assert metadata.topics == {}


def test_observers_are_notified_of_removed_topics(metadata: MetadataCache) -> None:
    """Observers are notified of a removal even if another topic gets the same name immediately."""
    gone: list[str] = []
    metadata.on_topics_removed(gone.extend)
    metadata.update(update_metadata("d"))
    assert gone == []
    metadata.update(update_metadata("b", leader=LEADER_DURING_DELETE))
    assert gone == ["b"]
    made_again = update_metadata("a")
    made_again["topic_states"][0]["topic_id"] = UUID(int=99)
    metadata.update(made_again)
    assert gone == ["b", "a"]
    metadata.update(part(0, 1, "d"))
    assert gone == ["b", "a", "a", "c"]


def test_topic_is_unknown_only_after_a_full_update(metadata: MetadataCache) -> None:
    """Before the last part, a missing topic may still arrive."""
    assert not metadata.is_complete
    metadata.update(part(0, 2, "a"))
    assert not metadata.is_complete
    metadata.update(part(1, 2, "b"))
    assert metadata.is_complete


def test_cache_without_any_update() -> None:
    """Before the first topic, or a full update without topics, no topic can be reported as unknown."""
    fresh: MetadataCache = MetadataCache(Clock())  # type: ignore[arg-type]
    fresh.update(update_metadata())
    assert fresh.is_empty, "a list of brokers says nothing about topics"
    fresh.update(part(0, 1))
    assert not fresh.is_empty


def test_first_topic_makes_other_topics_unknown(metadata: MetadataCache) -> None:
    """A controller that never sends full updates, such as Kafka's, also sends topics."""
    assert not metadata.is_complete
    assert not metadata.is_empty
