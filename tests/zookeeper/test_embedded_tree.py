"""The znode tree: stats, sequences, conditions, rollback, and its state as rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.zookeeper.embedded.quota import size_of
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.znode import (
    CONTAINER_OWNER,
    TTL_OWNER_BASE,
    Znode,
    ZnodeRow,
    is_expired,
    is_valid_path,
)
from kreplica.zookeeper.errors import (
    BadArguments,
    BadVersion,
    NoAuth,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    ZooKeeperError,
)
from kreplica.zookeeper.records import OPEN_ACL, Acl, Permission, Stat

SESSION = 77


def create(tree: Tree, path: str, data: bytes | None = b"", **options: Any) -> Znode:
    """Create a znode without ACL checks."""
    arguments: dict[str, Any] = {"acl": OPEN_ACL, "owner": 0, "sequence": False, "zxid": 1, "time_ms": 1000, **options}
    return tree.create(
        path,
        data,
        arguments["acl"],
        arguments["owner"],
        arguments["sequence"],
        (),
        arguments["zxid"],
        arguments["time_ms"],
    )


def state(tree: Tree) -> dict[str, tuple[Any, ...]]:
    """Return all observable state of a tree."""
    return {path: (node.row(), sorted(node.children or ())) for path, node in sorted(tree.nodes.items())}


def test_new_tree_matches_zookeeper() -> None:
    """A new tree has the same znodes and stats as a new ZooKeeper."""
    tree = Tree()
    assert sorted(tree.nodes) == ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    assert tree.nodes["/"].stat() == Stat(0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert tree.nodes["/zookeeper"].stat() == Stat(0, 0, 0, 0, 0, -2, 0, 0, 0, 2, 0)


def test_stat_fields_change_with_their_operations() -> None:
    """Data, children and ACL have separate versions, transaction IDs and times."""
    tree = Tree()
    create(tree, "/a", b"one", zxid=5, time_ms=500)
    create(tree, "/a/b", zxid=6, time_ms=600, owner=SESSION)
    tree.set_data("/a", b"three", -1, (), 7, 700)
    tree.set_acl("/a", (Acl(31, "world", "anyone"), Acl(1, "digest", "u:x")), 0, ())
    assert tree.nodes["/a"].stat() == Stat(5, 7, 500, 700, 1, 1, 1, 0, 5, 1, 6)
    assert tree.nodes["/a/b"].stat() == Stat(6, 6, 600, 600, 0, 0, 0, SESSION, 0, 0, 6)
    tree.delete("/a/b", 0, (), 8)
    assert tree.nodes["/a"].stat() == Stat(5, 7, 500, 700, 1, 2, 1, 0, 5, 0, 8)
    assert tree.ephemerals == {}


def test_children_are_listed_in_order_of_creation() -> None:
    """The order is the same for any number of children, even after deletions and after a failed multi."""
    tree = Tree()
    create(tree, "/a")
    assert tree.nodes["/a"].children is None
    listed = []
    for path in ("/a/c", "/a/b", "/a/d"):
        create(tree, path)
        listed.append(list(tree.nodes["/a"].children or ()))
    assert listed == [["c"], ["c", "b"], ["c", "b", "d"]]
    for path in ("/a/c", "/a/d", "/a/b"):
        tree.delete(path, -1, (), 2)
        listed.append(list(tree.nodes["/a"].children or ()))
    assert listed[3:] == [["b", "d"], ["b"], []]
    create(tree, "/a/e")
    tree.begin()
    tree.delete("/a/e", -1, (), 3)
    create(tree, "/a/f")
    tree.roll_back()
    assert list(tree.nodes["/a"].children or ()) == ["e"]


def test_only_children_with_the_same_name_are_independent() -> None:
    """Znodes of different partitions share the name of their only child until one of them changes."""
    tree = Tree()
    for path in ("/a", "/a/state", "/b", "/b/state"):
        create(tree, path)
    assert tree.nodes["/a"].children is tree.nodes["/b"].children
    create(tree, "/a/more")
    tree.delete("/a/state", -1, (), 2)
    assert [list(tree.nodes[path].children or ()) for path in ("/a", "/b")] == [["more"], ["state"]]


def test_znodes_share_equal_values() -> None:
    """The states of many partitions are equal; large data is not kept for sharing."""
    tree = Tree()
    for path in ("/a", "/b"):
        create(tree, path, bytes(100), zxid=2**40 + len(path), time_ms=2**41 + len(path))
        create(tree, f"{path}/large", bytes(1000))
    tree.set_data("/a", bytes(50), -1, (), 7, 7)
    tree.set_data("/b", bytes(50), -1, (), 7, 7)
    assert tree.nodes["/a"].data is tree.nodes["/b"].data
    assert tree.nodes["/a/large"].data is not tree.nodes["/b/large"].data
    rows = [ZnodeRow(*(int(str(each)) if type(each) is int else each for each in node.row())) for node in nodes(tree)]
    restored = Tree()
    restored.restore(rows)
    assert state(restored) == state(tree)
    a, b = restored.nodes["/a"], restored.nodes["/b"]
    assert a.data is b.data
    assert a.czxid is b.czxid
    assert a.ctime_ms is b.ctime_ms


def nodes(tree: Tree) -> list[Znode]:
    """Return all znodes, in order of their paths."""
    return [node for _, node in sorted(tree.nodes.items())]


def test_sequence_numbers_are_never_reused() -> None:
    """Deleting a child does not free its number, and ordinary children increment the counter too."""
    tree = Tree()
    create(tree, "/a")
    assert create(tree, "/a/n-", sequence=True).path == "/a/n-0000000000"
    create(tree, "/a/plain")
    tree.delete("/a/n-0000000000", -1, (), 2)
    assert create(tree, "/a/n-", sequence=True).path == "/a/n-0000000002"
    assert create(tree, "/a/", sequence=True).path == "/a/0000000003"


def test_sequence_overflows_like_javas_int() -> None:
    """Negative numbers follow 2147483647."""
    tree = Tree()
    create(tree, "/a")
    tree.nodes["/a"].creates = 0x7FFFFFFF
    assert create(tree, "/a/n", sequence=True).path == "/a/n2147483647"
    assert create(tree, "/a/n", sequence=True).path == "/a/n-2147483648"


@pytest.mark.parametrize(
    ("error", "path"),
    [
        (NodeExists, "/a"),
        (NodeExists, "/"),
        (NoNode, "/x/y"),
        (NoChildrenForEphemerals, "/e/x"),
        (BadArguments, "relative"),
        (BadArguments, "/a/"),
        (BadArguments, "/a/."),
        (BadArguments, "/a/.."),
        (BadArguments, "/a/b\0c"),
        (BadArguments, "/a/\x1b"),
        (BadArguments, "/a/\ud8ff"),
    ],
)
def test_invalid_creations(error: type[ZooKeeperError], path: str) -> None:
    """The error states the reason, and the tree does not change."""
    tree = Tree()
    create(tree, "/a")
    create(tree, "/e", owner=SESSION)
    before = state(tree)
    with pytest.raises(error):
        create(tree, path, zxid=9)
    assert state(tree) == before


@pytest.mark.parametrize("path", ["/", "/a", "/a.b/..c", "/ä/文", "/a b", "/..."])
def test_valid_paths(path: str) -> None:
    """Dots within names, spaces and letters of any language are valid."""
    assert is_valid_path(path)


def test_conditions_protect_a_znode() -> None:
    """A change is refused if the version is wrong, the znode has children, or it does not exist."""
    tree = Tree()
    create(tree, "/a")
    create(tree, "/a/b")
    with pytest.raises(BadVersion):
        tree.set_data("/a", b"", 1, (), 2, 0)
    with pytest.raises(BadVersion):
        tree.delete("/a/b", 1, (), 2)
    with pytest.raises(BadVersion):
        tree.check("/a", 1, ())
    with pytest.raises(BadVersion):
        tree.set_acl("/a", OPEN_ACL, 1, ())
    with pytest.raises(NotEmpty):
        tree.delete("/a", -1, (), 2)
    for operate in (lambda path: tree.check(path, -1, ()), lambda path: tree.delete(path, -1, (), 2), tree.get):
        with pytest.raises(NoNode):
            operate("/x")
    with pytest.raises(BadArguments):
        tree.delete("x", -1, (), 2)


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota"])
def test_zookeepers_own_znodes_cannot_be_deleted(path: str) -> None:
    with pytest.raises(BadArguments):
        Tree().delete(path, -1, (), 1)


def test_parent_acl_applies_to_create_and_delete() -> None:
    """CREATE and DELETE are permissions on the children of a znode, as in ZooKeeper."""
    tree = Tree()
    create(tree, "/a", acl=(Acl(Permission.READ, "world", "anyone"),))
    with pytest.raises(NoAuth):
        create(tree, "/a/b")
    with pytest.raises(NoAuth):
        tree.set_data("/a", b"", -1, (), 2, 0)
    with pytest.raises(NoAuth):
        tree.set_acl("/a", OPEN_ACL, -1, ())
    tree.check("/a", 0, ())
    tree.delete("/a", -1, (), 2)


def test_containers_and_ttl_znodes_become_removable() -> None:
    """A container is removable after its last child is deleted, a TTL znode after its TTL without a change."""
    tree = Tree()
    container = create(tree, "/box", owner=CONTAINER_OWNER)
    ttl_znode = create(tree, "/mortal", owner=TTL_OWNER_BASE + 100, time_ms=1000)
    assert list(tree.expendable) == ["/box", "/mortal"]
    assert not is_expired(container, 10**9)
    create(tree, "/box/a")
    assert not is_expired(container, 10**9)
    tree.delete("/box/a", -1, (), 2)
    assert is_expired(container, 0)
    assert not is_expired(ttl_znode, 1100)
    assert is_expired(ttl_znode, 1101)
    tree.remove("/box", 3)
    assert list(tree.expendable) == ["/mortal"]


def test_count_of_descendants() -> None:
    """The count does not include the znode itself."""
    tree = Tree()
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        create(tree, path)
    assert tree.count_below("/a") == 2
    assert tree.count_below("/") == 7
    with pytest.raises(NoNode):
        tree.count_below("/x")


NAMES = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.sampled_from([0, 0, SESSION, CONTAINER_OWNER]), st.booleans()),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("set"), NAMES, st.binary(max_size=3)),
    ),
    max_size=25,
)


def apply(tree: Tree, operation: tuple[Any, ...], zxid: int) -> None:
    """Apply one operation, ignoring its error."""
    kind, path, *rest = operation
    try:
        if kind == "create":
            create(tree, path, owner=rest[0], sequence=rest[1], zxid=zxid, time_ms=zxid * 10)
        elif kind == "delete":
            tree.delete(path, -1, (), zxid)
        else:
            tree.set_data(path, rest[0], -1, (), zxid, zxid * 10)
    except ZooKeeperError:
        pass


def assert_quota_is_exact(tree: Tree) -> None:
    """Assert that the quota's totals match the existing znodes."""
    assert tree.quota.count == len(tree.nodes)
    assert tree.quota.held_bytes == sum(map(size_of, tree.nodes.values()))


@settings(max_examples=150)
@given(OPERATIONS, OPERATIONS)
def test_rollback_restores_the_tree(before: list[Any], rolled_back: list[Any]) -> None:
    """After a rollback, the tree and its indexes are as before."""
    tree = Tree()
    for number, operation in enumerate(before, 1):
        apply(tree, operation, number)
    expected = state(tree), tree.ephemerals.copy(), set(tree.expendable)
    expected_ephemerals = {owner: set(paths) for owner, paths in tree.ephemerals.items()}
    tree.begin()
    for operation in rolled_back:
        apply(tree, operation, 100)
    tree.roll_back()
    assert state(tree) == expected[0]
    assert_quota_is_exact(tree)
    assert {owner: set(paths) for owner, paths in tree.ephemerals.items()} == expected_ephemerals
    assert set(tree.expendable) == expected[2]


@settings(max_examples=150)
@given(OPERATIONS, OPERATIONS)
def test_changed_rows_restore_the_tree(first: list[Any], second: list[Any]) -> None:
    """The rows passed to a store, group by group, contain the whole state."""
    tree = Tree()
    stored = {}
    for offset, operations in ((0, first), (100, second)):
        tree.changed = set()
        for number, operation in enumerate(operations, 1):
            apply(tree, operation, offset + number)
        for path in tree.changed:
            stored.pop(path, None)
            if path in tree.nodes:
                stored[path] = tree.nodes[path].row()
    restored = Tree()
    restored.restore(stored.values())
    assert state(restored) == state(tree)
    assert_quota_is_exact(tree)
    assert_quota_is_exact(restored)
    assert {owner: set(paths) for owner, paths in restored.ephemerals.items()} == {
        owner: set(paths) for owner, paths in tree.ephemerals.items()
    }
    assert set(restored.expendable) == set(tree.expendable)
