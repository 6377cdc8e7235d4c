"""Partitions that change owners in a consumer group (KIP-848), with slow and fast members and late requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.clients.consumer_member import ConsumerMember, Owners
from tests.support.mutations.scenarios.stage import SOURCE_KEY, Stage, stage
from tests.support.mutations.scenarios.stage_clients import READERS, SOURCE


class _Group:
    """A member that owns the source's only partition, and a member that will own it."""

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
        """Let each of these members send a heartbeat."""
        for member in members:
            self.scene.do(member.heartbeat())


@contextmanager
def _group(seed: int) -> Iterator[_Group]:
    with stage(seed) as scene:
        group = _Group(scene)
        yield group
        assert not group.owners.contradictions, "; ".join(group.owners.contradictions)


def slow_revocation(seed: int) -> None:
    """A member keeps processing a revoked partition while it sends heartbeats."""
    with _group(seed) as group:
        first, second = group.first, group.second
        first.is_slow = True
        group.scene.do(first.subscribe([]))
        group.beat(first, second, first, second)
        first.is_slow = False
        first.die()
        group.beat(first, second)
        assert second.owned


def assignment_before_revocation(seed: int) -> None:
    """The next owner sends heartbeats before the current owner learns that its partition is revoked."""
    with _group(seed) as group:
        first, second = group.first, group.second
        first.is_slow = True
        group.scene.do(second.subscribe([SOURCE]))
        asking = group.scene.begin(first.subscribe([]))
        group.beat(second, second)  # the first heartbeat may be sent before the rebalance
        group.scene.cluster.run_until(asking)
        first.is_slow = False
        first.die()
        group.beat(first, second)
        assert second.owned


def commit_after_revocation(seed: int) -> None:
    """A commit from the previous owner arrives after the next owner has committed a higher offset."""
    with _group(seed) as group:
        first, second = group.first, group.second
        epoch = first.epoch
        group.scene.do(first.subscribe([]))
        group.beat(first, second)
        assert group.scene.do(second.commit({SOURCE_KEY: 5}))
        group.scene.do(first.commit({SOURCE_KEY: 1}, epoch))
        offsets = group.scene.do(second.offsets([SOURCE_KEY]))
        assert offsets == {SOURCE_KEY: 5}, "a late commit overwrote a newer one"
