"""The client's requirements of a ZooKeeper server: the same scenarios run on a real and an embedded server."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, DeferredList, gatherResults

from kreplica.zookeeper import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    READ_ACL,
    Acl,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    EventType,
    GetChildren,
    GetData,
    InvalidAcl,
    MultiFailed,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Permission,
    RequestTooLarge,
    RuntimeInconsistency,
    SetData,
    Stat,
)
from tests.support.zookeeper_scene import Events, Scene, ServerUnderTest


async def raises(error: type[Exception], deferred: Deferred[Any]) -> Any:
    """Assert that the request fails with an error of the given type, and return the error."""
    with pytest.raises(error) as caught:
        await deferred
    return caught.value


def test_znode_life_cycle(zookeeper_server: ServerUnderTest) -> None:
    """A znode is created, read, changed and deleted, with its versions and stat."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        path, made = await client.create("/a", b"one")
        assert path == "/a"
        data, stat = await client.get_data("/a")
        assert (data, stat) == (b"one", made)
        changed = await client.set_data("/a", b"three", stat.version)
        assert (changed.version, changed.data_length, changed.czxid) == (1, 5, made.czxid)
        assert changed.mzxid > made.mzxid
        assert changed.pzxid == made.czxid
        assert abs(changed.mtime_ms - made.ctime_ms) < 60_000
        assert await client.exists("/a") == changed
        assert await client.delete("/a", 1) is None
        assert await client.exists("/a") is None
        assert client.last_zxid > changed.mzxid

    zookeeper_server.run(scenario)


def test_conditions_and_errors_with_their_path(zookeeper_server: ServerUnderTest) -> None:
    """Each kind of failure has its own error, which names the znode."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        await client.create("/a/b", b"", ephemeral=True)
        assert (await raises(NodeExists, client.create("/a"))).path == "/a"
        assert (await raises(NoNode, client.create("/x/y"))).path == "/x/y"
        assert (await raises(NoNode, client.get_data("/x"))).path == "/x"
        await raises(NoNode, client.get_children("/x"))
        await raises(NoNode, client.set_data("/x", b""))
        await raises(NoNode, client.delete("/x"))
        await raises(BadVersion, client.set_data("/a", b"", 7))
        await raises(BadVersion, client.delete("/a/b", 7))
        await raises(NotEmpty, client.delete("/a"))
        await raises(NoChildrenForEphemerals, client.create("/a/b/c"))

    zookeeper_server.run(scenario)


def test_invalid_paths_are_refused_by_the_client(zookeeper_server: ServerUnderTest) -> None:
    """The paths are rejected before anything is sent, even if a chroot would hide a missing slash."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for path in ("", "a", "/a/", "/a//b", "/a/../b", "/.", "/a/./b", "/a\0b"):
            with pytest.raises(BadArguments, match="a path"):
                client.get_data(path)
        assert (await client.create("/.a..b")).path == "/.a..b"

    zookeeper_server.run(scenario)


def test_children_are_listed_and_counted(zookeeper_server: ServerUnderTest) -> None:
    """Creating and deleting children changes the parent's list, count and child version, not its data version."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        await gatherResults([client.create(f"/a/{number}") for number in range(20)])
        _, last = await client.create("/a/last")
        assert sorted(await client.get_children("/a")) == sorted([*map(str, range(20)), "last"])
        stat = await client.exists("/a")
        assert stat is not None
        assert (stat.children_count, stat.children_version, stat.version, stat.pzxid) == (21, 21, 0, last.czxid)
        await client.delete("/a/3")
        stat = await client.exists("/a")
        assert stat is not None
        assert (stat.children_count, stat.children_version) == (20, 22)

    zookeeper_server.run(scenario)


def test_sequence_numbers_increase_and_are_never_reused(zookeeper_server: ServerUnderTest) -> None:
    """The numbers have ten digits and are counted per parent."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        first, _ = await client.create("/a/n-", sequence=True)
        second, _ = await client.create("/a/m-", sequence=True, ephemeral=True)
        assert (first, second) == ("/a/n-0000000000", "/a/m-0000000001")
        await client.delete(second)
        third, _ = await client.create("/a/n-", sequence=True)
        assert third[:5] == "/a/n-"
        assert int(third[5:]) > 1

    zookeeper_server.run(scenario)


def test_ephemeral_znodes_are_removed_with_their_session(zookeeper_server: ServerUnderTest) -> None:
    """The znodes have their owner's session ID, and are removed when the owner closes."""

    async def scenario(scene: Scene) -> None:
        owner, other = await scene.client(), await scene.client()
        _, stat = await owner.create("/e", b"", ephemeral=True)
        assert stat.ephemeral_owner == owner.session_id
        gone = Events()
        assert await other.exists("/e", gone) == stat
        await owner.close()
        assert (await gone.get()).type is EventType.NODE_DELETED
        assert await other.exists("/e") is None

    zookeeper_server.run(scenario)


def test_expired_session_removes_its_ephemeral_znodes(zookeeper_server: ServerUnderTest) -> None:
    """The znodes of a silent client are removed after its session timeout, and not before."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        owner = await scene.client(connect_string=link.connect_string, session_timeout_ms=800)
        other = await scene.client()
        await owner.create("/e", ephemeral=True)
        gone = Events()
        await other.exists("/e", gone)
        started = scene.reactor.seconds()
        await link.stop()
        assert (await gone.get()).type is EventType.NODE_DELETED
        assert 0.5 < scene.reactor.seconds() - started < 5
        await owner.close()

    zookeeper_server.run(scenario)


def test_watch_fires_once_for_the_first_change(zookeeper_server: ServerUnderTest) -> None:
    """Creation, deletion, data changes and child changes have different event types."""

    async def scenario(scene: Scene) -> None:
        watcher, writer = await scene.client(), await scene.client()
        made, data, children, deleted = Events(), Events(), Events(), Events()
        assert await watcher.exists("/a", made) is None
        await writer.create("/a")
        event = await made.get()
        assert (event.type, event.path) == (EventType.NODE_CREATED, "/a")

        await watcher.get_data("/a", data)
        await watcher.get_children("/a", children)
        for number in range(3):
            await writer.set_data("/a", b"%d" % number)
            await writer.create(f"/a/{number}")
        event = await data.get()
        assert (event.type, event.path) == (EventType.NODE_DATA_CHANGED, "/a")
        event = await children.get()
        assert (event.type, event.path) == (EventType.NODE_CHILDREN_CHANGED, "/a")

        await watcher.get_data("/a/0", deleted)
        await watcher.get_children("/a/0", deleted)
        await writer.delete("/a/0")
        await watcher.sync()
        assert [event.type for event in deleted.unheard] == [EventType.NODE_DELETED] * 2
        assert made.unheard + data.unheard + children.unheard == []

    zookeeper_server.run(scenario)


def test_failed_read_leaves_no_watch(zookeeper_server: ServerUnderTest) -> None:
    """Only ``exists`` can watch a missing znode."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        events = Events()
        await raises(NoNode, client.get_data("/a", events))
        await raises(NoNode, client.get_children("/a", events))
        await client.create("/a")
        await client.sync()
        assert events.unheard == []

    zookeeper_server.run(scenario)


def test_event_precedes_the_new_data(zookeeper_server: ServerUnderTest) -> None:
    """A client gets the event before any read returns the change."""

    async def scenario(scene: Scene) -> None:
        watcher, writer = await scene.client(), await scene.client()
        await writer.create("/a", b"old")
        calls: list[str] = []
        await watcher.get_data("/a", lambda event: calls.append("event"))
        change = writer.set_data("/a", b"new")
        while (await watcher.get_data("/a"))[0] != b"new":
            calls.append("old")
        calls.append("new")
        await change
        assert [each for each in calls if each != "old"] == ["event", "new"]
        assert "old" not in calls[calls.index("event") :]

    zookeeper_server.run(scenario)


def test_persistent_watch_fires_until_it_is_removed(zookeeper_server: ServerUnderTest) -> None:
    """The watch fires for every change of the znode and its list of children."""

    async def scenario(scene: Scene) -> None:
        watcher, writer = await scene.client(), await scene.client()
        events = Events()
        watch = await watcher.add_watch("/a", events)
        await writer.create("/a")
        await writer.set_data("/a", b"1")
        await writer.create("/a/b")
        await writer.set_data("/a/b", b"unseen")
        await writer.delete("/a/b")
        await writer.delete("/a")
        await watcher.sync()
        assert [(event.type.name, event.path) for event in events.unheard] == [
            ("NODE_CREATED", "/a"),
            ("NODE_DATA_CHANGED", "/a"),
            ("NODE_CHILDREN_CHANGED", "/a"),
            ("NODE_CHILDREN_CHANGED", "/a"),
            ("NODE_DELETED", "/a"),
        ]
        events.pending.clear()
        await watch.remove()
        await watch.remove()
        await writer.create("/a")
        await watcher.sync()
        assert events.unheard == []

    zookeeper_server.run(scenario)


def test_recursive_watch_fires_for_all_descendants(zookeeper_server: ServerUnderTest) -> None:
    """Each change of a znode fires an event for that znode; there are no child events."""

    async def scenario(scene: Scene) -> None:
        watcher, writer = await scene.client(), await scene.client()
        await writer.create("/a")
        await writer.create("/ab")
        events, once = Events(), Events()
        watch = await watcher.add_watch("/a", events, recursive=True)
        await watcher.get_children("/a", once)
        await writer.create("/a/b")
        await writer.create("/a/b/c")
        await writer.set_data("/a/b/c", b"1")
        await writer.set_data("/ab", b"beside it, not below")
        await writer.delete("/a/b/c")
        await watcher.sync()
        assert [(event.type.name, event.path) for event in events.unheard] == [
            ("NODE_CREATED", "/a/b"),
            ("NODE_CREATED", "/a/b/c"),
            ("NODE_DATA_CHANGED", "/a/b/c"),
            ("NODE_DELETED", "/a/b/c"),
        ]
        assert [event.type.name for event in once.unheard] == ["NODE_CHILDREN_CHANGED"]
        events.pending.clear()
        await watch.remove()
        await writer.set_data("/a/b", b"1")
        await watcher.sync()
        assert events.unheard == []

    zookeeper_server.run(scenario)


def test_removing_a_watch_leaves_others_of_its_path(zookeeper_server: ServerUnderTest) -> None:
    """A one-shot watch and another persistent one on the same path still fire."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        removed, kept, once = Events(), Events(), Events()
        watch = await client.add_watch("/a", removed)
        await client.add_watch("/a", kept)
        await client.get_data("/a", once)
        await watch.remove()
        await client.set_data("/a", b"1")
        await client.sync()
        assert (len(removed.unheard), len(kept.unheard), len(once.unheard)) == (0, 1, 1)

    zookeeper_server.run(scenario)


def test_multi_applies_operations_in_order(zookeeper_server: ServerUnderTest) -> None:
    """Each operation sees the effects of those before it, and has its own result."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/epoch")
        results = await client.multi(
            [
                Check("/epoch", 0),
                Create("/a", b"1"),
                Create("/a/b", ephemeral=True),
                Create("/a/n-", sequence=True),
                SetData("/a", b"22", 0),
                SetData("/a", b"333", 1),
                Create("/gone"),
                Delete("/gone", 0),
            ]
        )
        kinds = [type(result) for result in results]
        assert kinds == [type(None), Created, Created, Created, Stat, Stat, Created, type(None)]
        data, stat = await client.get_data("/a")
        assert (data, stat.version, stat.children_count) == (b"333", 2, 2)
        assert stat.czxid == stat.mzxid == stat.pzxid
        made, numbered, changed = results[1], results[3], results[5]
        assert isinstance(made, Created)
        assert isinstance(numbered, Created)
        assert isinstance(changed, Stat)
        assert made.path == "/a"
        assert numbered.path.startswith("/a/n-000000000")
        assert (changed.version, changed.data_length) == (2, 3)
        assert await client.exists("/gone") is None

    zookeeper_server.run(scenario)


def test_failed_multi_changes_nothing(zookeeper_server: ServerUnderTest) -> None:
    """The error names the first failed operation; later ones were not tried."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a", b"before")
        failed = await raises(
            MultiFailed,
            client.multi([SetData("/a", b"after"), Create("/b"), SetData("/a", b"x", 7), Delete("/a"), Check("/c", 0)]),
        )
        assert failed.index == 2
        assert isinstance(failed.error, BadVersion)
        assert failed.error.path == "/a"
        assert failed.results[:2] == [None, None]
        assert [type(error) for error in failed.results[2:]] == [BadVersion, RuntimeInconsistency, RuntimeInconsistency]
        data, stat = await client.get_data("/a")
        assert (data, stat.version) == (b"before", 0)
        assert await client.exists("/b") is None
        for operation, kind in (
            (Check("/a", 1), BadVersion),
            (Check("/none", 0), NoNode),
            (Create("/a"), NodeExists),
            (Delete("/none"), NoNode),
        ):
            failed = await raises(MultiFailed, client.multi([operation]))
            assert (failed.index, type(failed.error)) == (0, kind)

    zookeeper_server.run(scenario)


def test_empty_multi(zookeeper_server: ServerUnderTest) -> None:
    """An empty multi and an empty multi-read succeed."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        assert await client.multi([]) == []
        assert await client.multi_read([]) == []

    zookeeper_server.run(scenario)


def test_changes_of_a_multi_fire_watches(zookeeper_server: ServerUnderTest) -> None:
    """Each operation of a multi fires the same event as it does alone."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a")
        events = Events()
        await client.get_data("/a", events)
        await client.exists("/b", events)
        await client.multi([SetData("/a", b"1"), Create("/b")])
        await client.sync()
        assert [(event.type.name, event.path) for event in events.unheard] == [
            ("NODE_DATA_CHANGED", "/a"),
            ("NODE_CREATED", "/b"),
        ]

    zookeeper_server.run(scenario)


def test_multi_read_has_a_result_for_each_read(zookeeper_server: ServerUnderTest) -> None:
    """Each result is data, a list of children, or an error."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        _, stat = await client.create("/a", b"1")
        _, child = await client.create("/a/b")
        data, missing, children, none = await client.multi_read(
            [GetData("/a/b"), GetData("/x"), GetChildren("/a"), GetChildren("/x")]
        )
        assert data == (b"", child)
        assert children == ["b"]
        assert isinstance(missing, NoNode)
        assert isinstance(none, NoNode)
        assert missing.path == none.path == "/x"
        assert stat.czxid < child.czxid

    zookeeper_server.run(scenario)


def test_responses_keep_the_order_of_requests(zookeeper_server: ServerUnderTest) -> None:
    """Each pipelined request sees the changes sent before it."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        await client.create("/a", b"-1")
        completed: list[str] = []
        requests: list[Deferred[Any]] = []
        for number in range(500):
            write = client.set_data("/a", b"%d" % number, number)
            read = client.get_data("/a")
            write.addCallback(lambda stat, number=number: completed.append(f"{stat.version} written"))
            read.addCallback(lambda response: completed.append(f"{response[0].decode()} read"))
            requests += [write, read]
        await gatherResults(requests)
        assert completed == [text for number in range(500) for text in (f"{number + 1} written", f"{number} read")]

    zookeeper_server.run(scenario)


def test_acl_is_enforced(zookeeper_server: ServerUnderTest) -> None:
    """The creator, with its digest identity, owns its znode; others can neither read nor write it."""

    async def scenario(scene: Scene) -> None:
        owner = await scene.client(auth=[("digest", b"owner:secret")])
        other = await scene.client(auth=[("digest", b"owner:wrong")])
        await owner.create("/a", b"mine", acl=CREATOR_ALL_ACL)
        await raises(NoAuth, other.get_data("/a"))
        await raises(NoAuth, other.set_data("/a", b""))
        await raises(NoAuth, other.create("/a/b"))
        (refused,) = await other.multi_read([GetData("/a")])
        assert isinstance(refused, NoAuth)
        assert (await owner.get_data("/a"))[0] == b"mine"
        (entry,), stat = await owner.get_acl("/a")
        assert (entry.permissions, entry.scheme) == (Permission.ALL, "digest")
        assert entry.id.startswith("owner:")
        assert stat.acl_version == 0

        changed = await owner.set_acl("/a", READ_ACL, 0)
        assert changed.acl_version == 1
        assert (await other.get_data("/a"))[0] == b"mine"
        await raises(NoAuth, other.set_data("/a", b""))
        await raises(NoAuth, owner.set_acl("/a", OPEN_ACL))

    zookeeper_server.run(scenario)


def test_invalid_acls_are_refused(zookeeper_server: ServerUnderTest) -> None:
    """An ACL must have entries of a known scheme, and scheme auth needs an identity."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        for acl in ((), (Acl(Permission.ALL, "nosuch", "x"),), CREATOR_ALL_ACL):
            await raises(InvalidAcl, client.create("/a", acl=acl))
        await client.create("/a")
        await raises(BadVersion, client.set_acl("/a", OPEN_ACL, 5))

    zookeeper_server.run(scenario)


def test_chroot(zookeeper_server: ServerUnderTest) -> None:
    """Paths in requests, responses, errors and events are relative to the chroot."""

    async def scenario(scene: Scene) -> None:
        outside = await scene.client()
        inside = await scene.client(chroot=scene.chroot + "/deep/below")
        await inside.create_chroot()
        assert await outside.get_children("/deep") == ["below"]
        events, recursive = Events(), Events()
        await inside.get_children("/", events)
        await inside.add_watch("/", recursive, recursive=True)
        assert (await inside.create("/a", b"1")).path == "/a"
        assert (await outside.get_data("/deep/below/a"))[0] == b"1"
        assert (await raises(NodeExists, inside.create("/a"))).path == "/a"
        assert (await raises(MultiFailed, inside.multi([Create("/a")]))).error.path == "/a"
        (made,) = await inside.multi([Create("/b")])
        assert isinstance(made, Created)
        assert made.path == "/b"
        assert await inside.sync("/") == "/"
        assert [event.path for event in events.unheard] == ["/"]
        assert [event.path for event in recursive.unheard] == ["/a", "/b"]
        assert (await inside.multi_read([GetChildren("/")])) in ([["a", "b"]], [["b", "a"]])

    zookeeper_server.run(scenario)


def test_oversized_request_is_refused_by_the_client(zookeeper_server: ServerUnderTest) -> None:
    """A server would close the connection, so the client refuses such a request, and continues."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        almost = b"x" * (1024 * 1024 - 1024)
        await client.create("/a", almost)
        assert (await client.get_data("/a"))[0] == almost
        before = client.get_data("/a")
        refused = await raises(RequestTooLarge, client.set_data("/a", b"x" * (1024 * 1024)))
        assert "1,048,575" in str(refused)
        await raises(RequestTooLarge, client.multi([SetData("/a", almost), SetData("/a", almost)]))
        assert (await before)[0] == almost

    zookeeper_server.run(scenario)


def test_read_after_sync_is_current(zookeeper_server: ServerUnderTest) -> None:
    """Sync returns its path and brings the server up to date."""

    async def scenario(scene: Scene) -> None:
        writer, reader = await scene.client(), await scene.client()
        await writer.create("/a", b"0")
        for number in range(20):
            await writer.set_data("/a", b"%d" % number)
            synced, (data, _) = await gatherResults([reader.sync("/a"), reader.get_data("/a")])
            assert (synced, data) == ("/a", b"%d" % number)

    zookeeper_server.run(scenario)


def test_concurrent_conditional_writes(zookeeper_server: ServerUnderTest) -> None:
    """If several clients write the same version of a znode, exactly one of them succeeds."""

    async def scenario(scene: Scene) -> None:
        clients = [await scene.client() for _ in range(4)]
        await clients[0].create("/counter", b"0")
        successes = 0
        for version in range(25):
            attempts = [client.set_data("/counter", b"%d" % version, version) for client in clients]
            outcomes = await DeferredList(attempts, consumeErrors=True)
            successes += sum(succeeded for succeeded, _ in outcomes)
            assert all(succeeded or isinstance(result.value, BadVersion) for succeeded, result in outcomes)
        assert successes == 25

    zookeeper_server.run(scenario)
