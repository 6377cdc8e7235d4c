"""Verification of follower fetches against registrations in ZooKeeper."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from kreplica.membership.follower_incarnations import FollowerIncarnations
from kreplica.model import NO_BROKER_EPOCH
from kreplica.zookeeper import ConnectionLoss, SessionExpired


class Registrations:
    """ZooKeeper client with scripted registrations and responses."""

    def __init__(self, **epochs: int) -> None:
        self.epochs = {int(name.removeprefix("b")): epoch for name, epoch in epochs.items()}
        self.waiting: deque[Deferred[Any]] = deque()
        self.read_paths: list[str] = []

    def sync(self, path: str) -> Deferred[str]:
        return succeed(path)

    def exists(self, path: str) -> Deferred[Any]:
        self.read_paths.append(path)
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def answer(self) -> None:
        paths, self.read_paths = self.read_paths, []
        for path in paths:
            epoch = self.epochs.get(int(path.rpartition("/")[2]))
            self.waiting.popleft().callback(None if epoch is None else SimpleNamespace(czxid=epoch))


def follower_incarnations(registrations: Registrations) -> FollowerIncarnations:
    client: Any = registrations
    return FollowerIncarnations(client)


def confirm(registrations: Registrations, incarnations: FollowerIncarnations, broker_id: int, epoch: int) -> bool:
    outcome: list[bool] = []
    incarnations.confirm(broker_id, epoch).addCallback(outcome.append)
    registrations.answer()
    return outcome[0]


@pytest.mark.parametrize(("broker_id", "epoch"), [(2, 19), (2, 21), (2, 2**63 - 1), (3, 20), (3, NO_BROKER_EPOCH)])
def test_only_the_registered_epoch_is_confirmed(broker_id: int, epoch: int) -> None:
    """Other epochs and unregistered brokers are rejected."""
    registrations = Registrations(b2=20)
    incarnations = follower_incarnations(registrations)
    assert not confirm(registrations, incarnations, broker_id, epoch)
    assert incarnations.epochs == {}
    assert confirm(registrations, incarnations, 2, 20)
    assert incarnations.epochs == {2: 20}


def test_broker_that_sent_its_epoch_cannot_omit_it() -> None:
    """Fetches without an epoch (before KIP-903) are accepted only until the process has sent an epoch."""
    registrations = Registrations(b2=20)
    incarnations = follower_incarnations(registrations)
    assert confirm(registrations, incarnations, 2, NO_BROKER_EPOCH)
    assert confirm(registrations, incarnations, 2, 20)
    assert not confirm(registrations, incarnations, 2, NO_BROKER_EPOCH)
    assert incarnations.epochs == {2: 20}
    registrations.epochs[2] = 30
    assert confirm(registrations, incarnations, 2, NO_BROKER_EPOCH), "its next process may run an older release"


def test_one_batch_of_reads_at_a_time() -> None:
    """Verifications that start during a read share the next read."""
    registrations = Registrations(b2=20)
    incarnations = follower_incarnations(registrations)
    outcomes: list[tuple[int, bool]] = []
    for epoch in (20, 7, 7, 20):
        incarnations.confirm(2, epoch).addCallback(lambda each, epoch=epoch: outcomes.append((epoch, each)))
    assert registrations.read_paths == ["/brokers/ids/2"]
    registrations.answer()
    assert outcomes == [(20, True)]
    assert registrations.read_paths == ["/brokers/ids/2"]
    registrations.answer()
    assert sorted(outcomes) == [(7, False), (7, False), (20, True), (20, True)]


def test_zookeeper_outage_confirms_nothing() -> None:
    """During a ZooKeeper outage fetches are refused, and the follower retries."""
    registrations = Registrations(b2=20)
    incarnations = follower_incarnations(registrations)
    outcome: list[bool] = []
    incarnations.confirm(2, 20).addCallback(outcome.append)
    registrations.waiting.popleft().errback(ConnectionLoss("/brokers/ids/2"))
    assert outcome == [False]
    registrations.read_paths.clear()
    assert confirm(registrations, incarnations, 2, 20)


def test_closed_connection_cancels_its_verification() -> None:
    registrations = Registrations(b2=20)
    incarnations = follower_incarnations(registrations)
    outcome: list[bool] = []
    for _ in range(2):
        verification = incarnations.confirm(2, 20)
        verification.addErrback(lambda _: None)
        verification.cancel()
    incarnations.confirm(2, 20).addCallback(outcome.append)
    registrations.answer()
    registrations.answer()
    assert outcome == [True]


def test_a_read_that_fails_immediately_does_not_stop_later_reads() -> None:
    """An expired session fails each request immediately; the next session confirms followers again."""

    class Expired(Registrations):
        has_expired = True

        def exists(self, path: str) -> Deferred[Any]:
            return fail(SessionExpired(path, "the session has expired")) if self.has_expired else super().exists(path)

    registrations = Expired(b2=20)
    incarnations = follower_incarnations(registrations)
    assert not confirm(registrations, incarnations, 2, 20)
    registrations.has_expired = False
    assert confirm(registrations, incarnations, 2, 20)
