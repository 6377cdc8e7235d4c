"""Partitions that change hands within a group of KIP-848: who is slow, who is quick, and what comes late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kreplica.testing.storms.clients.chain_clients import READERS, SOURCE
from tests.support.consumer_member import ConsumerMember, Owners
from tests.support.mutations.scenarios.stage import SOURCE_KEY, Stage, stage


class _Group:
    """A member that has the source's only partition, and one that will have it."""

    def __init__(self, scene: Stage) -> None:
        self.scene = scene
        self.owners = Owners()
        self.first, self.second = self._member("first"), self._member("second")
        self.beat(self.first, self.second)
        assert self.first.owned
        assert not self.second.owned

    def _member(self, name: str) -> ConsumerMember:
        return ConsumerMember(self.scene.group_client(name), READERS, name, [SOURCE], self.owners)

    def beat(self, *members: ConsumerMember) -> None:
        """Let members send a heartbeat each."""
        for member in members:
            self.scene.do(member.heartbeat())


@contextmanager
def _group(seed: int) -> Iterator[_Group]:
    with stage(seed) as scene:
        group = _Group(scene)
        yield group
        assert not group.owners.contradictions, "; ".join(group.owners.contradictions)


def gives_up_slowly(seed: int) -> None:
    """A member is told to give its partition up, and goes on with it for a while, though it is heard of."""
    with _group(seed) as group:
        first, second = group.first, group.second
        first.is_slow = True
        group.scene.do(first.subscribe([]))
        group.beat(first, second, first, second)
        first.is_slow = False
        first.die()
        group.beat(first, second)
        assert second.owned


def is_asked_for_at_once(seed: int) -> None:
    """Who is to have a partition next asks for it before its owner has heard that it is to give it up."""
    with _group(seed) as group:
        first, second = group.first, group.second
        first.is_slow = True
        group.scene.do(second.subscribe([SOURCE]))
        asking = group.scene.begin(first.subscribe([]))
        group.beat(second, second)  # the first of them may be faster than what it is to be after
        group.scene.cluster.run_until(asking)
        first.is_slow = False
        first.die()
        group.beat(first, second)
        assert second.owned


def commits_what_was_given_away(seed: int) -> None:
    """A commit of who had a partition comes when another has it, and has committed more."""
    with _group(seed) as group:
        first, second = group.first, group.second
        epoch = first.epoch
        group.scene.do(first.subscribe([]))
        group.beat(first, second)
        assert group.scene.do(second.commit({SOURCE_KEY: 5}))
        group.scene.do(first.commit({SOURCE_KEY: 1}, epoch))
        offsets = group.scene.do(second.offsets([SOURCE_KEY]))
        assert offsets == {SOURCE_KEY: 5}, "a commit that came late took back what was committed"
