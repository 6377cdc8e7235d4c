"""Watches, sessions and access checks without I/O."""

from __future__ import annotations

from random import Random

import pytest

from kreplica.zookeeper.embedded import watches as watches_module
from kreplica.zookeeper.embedded.access import (
    authenticate,
    check_access,
    digest_identity,
    effective_acl,
    hide_digests,
    may_see_digests,
)
from kreplica.zookeeper.embedded.sessions import SessionRow, Sessions
from kreplica.zookeeper.embedded.watches import Notice, Watches
from kreplica.zookeeper.errors import AuthFailed, InvalidAcl, NoAuth, Throttled
from kreplica.zookeeper.records import OPEN_ACL, Acl, AddWatchMode, EventType, WatcherType

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED


def test_watch_fires_once_for_its_kind_of_event() -> None:
    """Data and child watches fire for different events; the first event removes a watch."""
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.children.add("/a", "bob")
    assert watches.data_changed("/a") == [Notice("ann", CHANGED, "/a")]
    assert watches.data_changed("/a") == []
    assert watches.created("/a/b") == [Notice("bob", CHILDREN, "/a")]
    assert watches.deleted("/a/b") == []
    assert not watches


def test_watcher_of_both_kinds_gets_one_deletion_event() -> None:
    """A deletion is sent to data and child watchers, and as a child change to the parent's child watchers."""
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.children.add("/a", "ann")
    watches.children.add("/a", "bob")
    watches.children.add("/", "ann")
    assert watches.deleted("/a") == [
        Notice("ann", DELETED, "/a"),
        Notice("bob", DELETED, "/a"),
        Notice("ann", CHILDREN, "/"),
    ]
    assert not watches


def test_persistent_watches_stay_and_recursive_ones_include_descendants() -> None:
    """A recursive watch fires for every descendant, but not for changed lists of children."""
    watches: Watches[str] = Watches()
    watches.add_persistent("/a", "ann", AddWatchMode.PERSISTENT)
    watches.add_persistent("/a", "bob", AddWatchMode.PERSISTENT_RECURSIVE)
    for _ in range(2):
        assert watches.created("/a/b") == [Notice("bob", CREATED, "/a/b"), Notice("ann", CHILDREN, "/a")]
        assert watches.data_changed("/a/b/c") == [Notice("bob", CHANGED, "/a/b/c")]
        assert watches.data_changed("/a") == [Notice("ann", CHANGED, "/a"), Notice("bob", CHANGED, "/a")]
    watches.add_persistent("/", "cat", AddWatchMode.PERSISTENT_RECURSIVE)
    assert watches.data_changed("/x") == [Notice("cat", CHANGED, "/x")]


def test_one_shot_and_persistent_watch_give_one_event() -> None:
    """The one-shot watch is removed by that event, the persistent watch is not."""
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.add_persistent("/a", "ann", AddWatchMode.PERSISTENT)
    assert watches.data_changed("/a") == [Notice("ann", CHANGED, "/a")]
    assert watches.data_changed("/a") == [Notice("ann", CHANGED, "/a")]


def test_watches_are_removed_by_kind() -> None:
    """Removing a missing watch returns False."""
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.children.add("/a", "ann")
    assert watches.has("/a", "ann", WatcherType.DATA)
    assert watches.remove("/a", "ann", WatcherType.DATA)
    assert not watches.remove("/a", "ann", WatcherType.DATA)
    assert watches.has("/a", "ann", WatcherType.ANY)
    watches.add_persistent("/a", "ann", AddWatchMode.PERSISTENT)
    assert watches.remove("/a", "ann", WatcherType.CHILDREN)
    assert not watches.remove("/a", "ann", WatcherType.CHILDREN)
    assert watches.data_changed("/a") == [Notice("ann", CHANGED, "/a")]
    assert watches.remove("/a", "ann", WatcherType.ANY)
    assert not watches.has("/a", "ann", WatcherType.ANY)
    assert not watches


def test_removed_watcher_leaves_nothing() -> None:
    """After a watcher is forgotten, none of its watches fires, and those of others remain."""
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.add_persistent("/b", "ann", AddWatchMode.PERSISTENT_RECURSIVE)
    watches.children.add("/a", "bob")
    watches.forget("ann")
    assert watches.data_changed("/a") == watches.created("/b/c") == []
    assert len(watches.data) == 0
    assert len(watches.children) == 1


def test_watches_per_watcher_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch above the limit is refused; removing one makes room; other watchers are not affected."""
    monkeypatch.setattr(watches_module, "WATCHER_BYTES_MAX", 2 * (watches_module.WATCH_BYTES + 2))
    watches: Watches[str] = Watches()
    watches.data.add("/a", "ann")
    watches.data.add("/b", "ann")
    watches.data.add("/b", "ann")
    with pytest.raises(Throttled):
        watches.data.add("/c", "ann")
    watches.data.add("/c", "bob")
    watches.remove("/a", "ann", WatcherType.ANY)
    watches.data.add("/c", "ann")


# --- sessions ---


def new_sessions() -> Sessions:
    return Sessions(tick_time_ms=1000, random=Random(1))


@pytest.mark.parametrize(("requested", "granted"), [(0, 2000), (5000, 5000), (10**6, 20_000), (-1, 2000)])
def test_timeout_is_between_two_and_twenty_ticks(requested: int, granted: int) -> None:
    """A client gets the nearest allowed value."""
    assert new_sessions().open(requested, 1_700_000_000_000, 0.0).timeout_ms == granted


def test_session_ids_increase_and_differ_between_runs() -> None:
    """IDs stay unique if sessions are opened within one millisecond or the clock is set back."""
    first = new_sessions()
    ids = [first.open(5000, now_ms, 0.0).session_id for now_ms in (1000, 1000, 1001, 999)]
    assert ids == sorted(set(ids))
    assert all(each > 0 for each in ids)
    later = new_sessions()
    later.restore([each.row() for each in first.by_id.values()], 0.0)
    assert later.open(5000, 1000, 0.0).session_id not in ids


def test_session_is_resumed_only_with_its_password() -> None:
    """A wrong password and an expired session give the same result."""
    sessions = new_sessions()
    session = sessions.open(5000, 1000, 0.0)
    assert sessions.reattach(session.session_id, b"x" * 16, 5000, 1.0) is None
    assert sessions.reattach(session.session_id + 1, session.password, 5000, 1.0) is None
    assert sessions.reattach(session.session_id, session.password, 7000, 1.0) is session
    assert (session.timeout_ms, session.last_heard) == (7000, 1.0)
    assert sessions.close(session.session_id) is session
    assert sessions.reattach(session.session_id, session.password, 5000, 1.0) is None
    assert sessions.close(session.session_id) is None


def test_pause_of_the_server_extends_sessions() -> None:
    """A session expires after its timeout without a message; a pause of the server extends the timeout."""
    sessions = new_sessions()
    session = sessions.open(5000, 1000, 100.0)
    assert sessions.expired(105.0) == []
    assert sessions.expired(105.1) == [session]
    sessions.extend(3.0)
    assert sessions.expired(108.0) == []


def test_restored_session_has_its_full_timeout() -> None:
    """While the server was down, no client could reach it."""
    sessions = new_sessions()
    sessions.restore([SessionRow(5, 4000, b"p" * 16)], now=50.0)
    assert sessions.expired(54.0) == []
    assert [each.session_id for each in sessions.expired(54.1)] == [5]


# --- access ---

ANN = digest_identity(b"ann:secret")


def test_digest_equals_zookeepers() -> None:
    """The value for ``super:test`` is in ZooKeeper's documentation of its super user."""
    assert digest_identity(b"super:test") == ("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")


@pytest.mark.parametrize(
    ("entry", "identities", "allowed"),
    [
        (Acl(1, "world", "anyone"), (), True),
        (Acl(2, "world", "anyone"), (), False),
        (Acl(1, *ANN), (ANN,), True),
        (Acl(1, *ANN), (("ip", "127.0.0.1"),), False),
        (Acl(1, "ip", "127.0.0.1"), (("ip", "127.0.0.1"),), True),
        (Acl(1, "ip", "127.0.0.0/8"), (("ip", "127.9.9.9"),), True),
        (Acl(1, "ip", "10.0.0.0/8"), (("ip", "127.9.9.9"),), False),
    ],
)
def test_acl_schemes(entry: Acl, identities: tuple[tuple[str, str], ...], allowed: bool) -> None:
    """An ACL entry matches any client, a user, an address or a network."""
    if allowed:
        check_access((entry,), 1, identities, "/a")
    else:
        with pytest.raises(NoAuth):
            check_access((entry,), 1, identities, "/a")


@pytest.mark.parametrize(
    "acl",
    [
        (),
        (Acl(31, "world", "somebody"),),
        (Acl(31, "digest", "nocolon"),),
        (Acl(31, "ip", "not-an-address"),),
        (Acl(31, "unheard-of", "x"),),
        (Acl(31, "auth", ""),),
    ],
)
def test_invalid_acls_are_refused(acl: tuple[Acl, ...]) -> None:
    """The scheme auth is invalid for a client that has not authenticated."""
    with pytest.raises(InvalidAcl):
        effective_acl(acl, (("ip", "127.0.0.1"),), "/a")


def test_scheme_auth_is_replaced_by_the_caller() -> None:
    """The caller's address is not used, and duplicate entries are removed."""
    acl = effective_acl((Acl(31, "auth", ""), Acl(31, *ANN)), (("ip", "127.0.0.1"), ANN), "/a")
    assert acl == (Acl(31, *ANN),)
    assert effective_acl(list(OPEN_ACL), (), "/a") is OPEN_ACL


def test_password_hashes_are_hidden_from_readers() -> None:
    """Only identities with the ADMIN permission may see the hashes."""
    acl = (Acl(31, *ANN), Acl(1, "world", "anyone"))
    assert hide_digests(acl) == (Acl(31, "digest", "ann:x"), Acl(1, "world", "anyone"))
    assert may_see_digests(acl, (ANN,))
    assert not may_see_digests(acl, ())


@pytest.mark.parametrize(("scheme", "credentials"), [("digest", b"x"), ("digest", b"\xff:x"), ("sasl", b"x:y")])
def test_invalid_credentials_are_refused(scheme: str, credentials: bytes) -> None:
    """Digest credentials must be UTF-8 text with a colon; other schemes are unknown."""
    with pytest.raises(AuthFailed):
        authenticate(scheme, credentials, "127.0.0.1")
