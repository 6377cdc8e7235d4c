"""Roster of a classic group: members, leader and common protocols."""

from __future__ import annotations

from classic_scene import StrictClock, protocols

from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import JoinResponse
from kreplica.groups.classic.roster import Roster
from kreplica.groups.memory_limits import GroupAccount, GroupMemory


def member(member_id: str, *names: str, instance_id: str | None = None, topics: tuple[str, ...] = ("t",)) -> Member:
    offered = protocols(*(names or ("range",)), topics=topics)
    return Member(member_id, instance_id, "client", "/host", 10_000, 30_000, offered, StrictClock(), lambda _: None)


def roster_of(*members: Member) -> Roster:
    roster = Roster(GroupAccount(GroupMemory(), "g"))
    for each in members:
        roster.add(each, "consumer")
    return roster


def ignore_response(_: JoinResponse) -> None:
    pass


def test_first_member_leads() -> None:
    """The first member becomes leader; when the leader is removed, the first remaining member replaces it."""
    a, b, c = member("a"), member("b"), member("c")
    roster = roster_of(a, b, c)
    assert roster.leader == "a"
    roster.leader = "c"
    roster.remove(a)
    assert roster.leader == "c"
    roster.remove(c)
    assert roster.leader == "b"
    roster.remove(b)
    assert roster.leader is None


def test_leader_that_has_not_joined() -> None:
    """A leader that has not joined is replaced by the first joined member, if any."""
    roster = roster_of(member("a"), member("b"), member("c"))
    assert not roster.elect_joined_leader()
    assert roster.leader == "a"
    roster.await_join(roster.members["b"], ignore_response)
    roster.await_join(roster.members["c"], ignore_response)
    assert roster.elect_joined_leader()
    assert roster.leader == "b"
    roster.leader = "c"
    assert roster.elect_joined_leader()
    assert roster.leader == "c"


def test_all_have_joined() -> None:
    """All members have joined if each waits for its response and no member ID is unused."""
    roster = roster_of(member("a"))
    assert not roster.has_all_joined
    roster.await_join(roster.members["a"], ignore_response)
    assert roster.has_all_joined
    roster.pending["b"] = member("b").session
    assert not roster.has_all_joined
    roster.pending.clear()
    assert roster.end_join(roster.members["a"]) is ignore_response
    assert roster.end_join(roster.members["a"]) is None
    assert not roster.has_all_joined


def test_renamed_static_member() -> None:
    """A static member with a new ID remains leader, and its SyncGroup request is still expected."""
    a = member("a", instance_id="one")
    roster = roster_of(a, member("b"))
    roster.unsynced = {"a": None, "b": None}
    roster.rename(a, "c")
    assert roster.leader == "c"
    assert list(roster.members) == ["b", "c"]
    assert roster.id_of("one") == "c"
    assert set(roster.unsynced) == {"b", "c"}
    roster.unsynced = {"b": None}
    roster.rename(a, "d")
    assert set(roster.unsynced) == {"b"}
    roster.remove(a)
    assert roster.id_of("one") is None
    assert roster.id_of(None) is None
    assert roster.leader == "b"


def test_common_protocols() -> None:
    """A new member must have the group's protocol type and support a protocol common to all members."""
    roster = roster_of(member("a", "range", "sticky"), member("b", "sticky", "robin"))
    assert roster.supports("consumer", protocols("sticky"))
    assert roster.supports("consumer", protocols("other", "sticky"))
    assert not roster.supports("consumer", protocols("range", "robin"))
    assert not roster.supports("consumer", ())
    assert not roster.supports("connect", protocols("sticky"))


def test_protocol_selection() -> None:
    """Only a protocol common to all members is selected; the first member breaks ties."""
    assert roster_of(member("a", "range", "sticky"), member("b", "sticky")).select_protocol() == "sticky"
    both = (member("a", "range", "sticky"), member("b", "sticky", "range"))
    assert roster_of(*both).select_protocol() == "range"
    assert roster_of(*both[::-1]).select_protocol() == "sticky"


def test_rejoining_member_replaces_its_fields() -> None:
    """A member that rejoins replaces its protocols and both timeouts."""
    a, b = member("a", "range"), member("b", "range")
    roster = roster_of(a, b)
    roster.update(a, protocols("range", "sticky"), 20_000, 60_000)
    roster.update(b, protocols("sticky"), 10_000, 30_000)
    assert roster.select_protocol() == "sticky"
    assert a.session_timeout_ms == 20_000
    assert roster.rebalance_timeout_ms == 60_000
    roster.remove(a)
    assert roster.rebalance_timeout_ms == 30_000
    roster.remove(b)
    assert roster.rebalance_timeout_ms == 0


def test_subscribed_topics() -> None:
    """Subscribed topics are read from the selected protocol's metadata and updated when members change."""
    a, b = member("a", topics=("t", "u")), member("b", topics=("v",))
    roster = roster_of(a)
    assert roster.topics("range") == {"t", "u"}
    roster.add(b, "consumer")
    assert roster.topics("range") == {"t", "u", "v"}
    roster.remove(a)
    assert roster.topics("range") == {"v"}
    roster.update(b, protocols("range", "sticky", topics=("w",)), 10_000, 30_000)
    assert roster.topics("range") == {"w"}
    roster.update(b, (("range", b"\x00\x00nonsense"), *protocols("sticky")), 10_000, 30_000)
    assert roster.topics("range") is None
    assert roster.topics("sticky") == {"t"}
    assert roster.topics(None) is None
    roster.remove(b)
    assert roster.topics(None) == frozenset()


def test_other_protocol_types_have_no_topics() -> None:
    """For protocol types other than ``consumer``, metadata is not decoded."""
    roster = Roster(GroupAccount(GroupMemory(), "g"))
    roster.add(member("a"), "connect")
    assert roster.topics("range") is None
    assert Roster(GroupAccount(GroupMemory(), "g")).topics(None) is None
