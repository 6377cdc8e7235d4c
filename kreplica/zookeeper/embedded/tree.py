"""Tree of znodes and its operations, without I/O; IDs, times and identities are parameters.

Every change adds the affected paths to ``Tree.changed``.  The group commit writes their resulting state instead of a
log of operations, so that many changes to one znode cost one row.  Changes between ``begin`` and ``commit`` can be
undone with ``roll_back``, which makes a multi atomic.

As in ZooKeeper, the counter for sequential names counts all children ever created; a stat's ``cversion`` (creations
plus deletions) is derived from it and from the current number of children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kreplica.zookeeper.embedded.access import AclPool, Identity, check_access
from kreplica.zookeeper.embedded.quota import Quota, QuotaBounds, acl_size, data_size
from kreplica.zookeeper.embedded.znode import (
    RESERVED_PATHS,
    ROOT,
    Znode,
    ZnodeRow,
    int32,
    is_valid_name,
    missing_error,
    parent_of,
)
from kreplica.zookeeper.errors import (
    BadArguments,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from kreplica.zookeeper.records import OPEN_ACL, Acl, Permission

_SHARED_VALUES_MAX = 1_000
"""Maximum number of recent values that znodes share: many znodes have equal data, times and zxids."""

_SHARED_DATA_BYTES_MAX = 200


class Tree:
    """All znodes by path.

    :ivar quota: counts the znodes; callers check that a write is within the quota.
    :ivar changed: paths created, changed or deleted since the owner last replaced this set.
    :ivar ephemerals: session ID -> paths of its ephemeral znodes.
    :ivar acls: shares equal ACLs of znodes.
    :ivar expendable: paths of containers and of znodes with a time to live, which the server deletes when they expire.
    """

    def __init__(self, quota: Quota | None = None) -> None:
        self.quota = quota or Quota(QuotaBounds())
        self.nodes: dict[str, Znode] = {}
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.expendable: dict[str, None] = {}
        self.changed: set[str] = set()
        self.acls = AclPool()
        self._shared_data: dict[bytes, bytes] = {}
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self._create_roots()

    def _create_roots(self) -> None:
        for path in (ROOT, *RESERVED_PATHS):
            self._attach(Znode(path, b"", OPEN_ACL, 0, 0, 0))
        # The znodes that ZooKeeper creates itself are not counted as created children.
        self.nodes[ROOT].creates = self.nodes["/zookeeper"].creates = 0

    # --- reading ---

    def get(self, path: str) -> Znode:
        """Return a znode.

        :raise NoNode: if it does not exist.
        """
        node = self.nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def count_below(self, path: str) -> int:
        """Return the number of descendants of a znode.

        :raise NoNode: if the znode does not exist.
        """
        todo = [self.get(path)]
        count = 0
        while todo:
            node = todo.pop()
            prefix = node.path if node.path != ROOT else ""
            todo.extend(self.nodes[f"{prefix}/{name}"] for name in node.children or ())
            count += 1
        return count - 1

    # --- changing ---

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: tuple[Acl, ...],
        owner: int,
        sequence: bool,
        identities: Sequence[Identity],
        zxid: int,
        time_ms: int,
    ) -> Znode:
        """Create a znode; if ``sequence`` is True, append the next sequence number to its name.

        :raise NoNode: if the parent does not exist.
        :raise NodeExists, NoChildrenForEphemerals, NoAuth, BadArguments: see these classes.
        """
        cut = path.rfind("/")
        if cut < 0:
            raise BadArguments(path, "a path must start with /")
        parent = self.nodes.get(path[:cut] or ROOT)
        if parent is None:
            raise NoNode(path)
        if parent.acl is not OPEN_ACL:
            check_access(parent.acl, Permission.CREATE, identities, path)
        if sequence:
            path = f"{path}{parent.creates:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        name = path[cut + 1 :]
        if not is_valid_name(name):
            raise BadArguments(path)
        if parent.owner > 0:
            raise NoChildrenForEphemerals(path)
        node = Znode(path, self._shared(data), acl, owner, zxid, time_ms)
        if self._undo is not None:
            self._undo.append((self._undo_create, (node, parent, parent.pzxid)))
        self.nodes[path] = node
        self.quota.add(node)
        parent.add_child(name)
        parent.creates = int32(parent.creates + 1)
        parent.pzxid = zxid
        if owner:
            self._index_owner(node)
        self.changed.add(path)
        self.changed.add(parent.path)
        return node

    def delete(self, path: str, version: int, identities: Sequence[Identity], zxid: int) -> Znode:
        """Delete a znode without children and return it.

        :param version: expected data version; -1 matches any.
        """
        if path == ROOT or path in RESERVED_PATHS:
            raise BadArguments(path, "this znode cannot be deleted")
        if "/" not in path or "\0" in path:
            raise BadArguments(path)
        parent = self.get(parent_of(path))
        # Checked first, so that the error does not reveal a znode's existence to a client without permission.
        check_access(parent.acl, Permission.DELETE, identities, path)
        node = self.get(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        if node.children:
            raise NotEmpty(path)
        return self.remove(path, zxid)

    def remove(self, path: str, zxid: int) -> Znode:
        """Delete an existing znode without children, regardless of its ACL, and return it."""
        node = self.nodes[path]
        parent = self.nodes[parent_of(path)]
        if self._undo is not None:
            self._undo.append((self._undo_delete, (node, parent, parent.pzxid)))
        self._detach(node)
        parent.pzxid = zxid
        self.changed.add(path)
        self.changed.add(parent.path)
        return node

    def set_data(
        self, path: str, data: bytes | None, version: int, identities: Sequence[Identity], zxid: int, time_ms: int
    ) -> Znode:
        """Replace a znode's data.

        :param version: expected data version; -1 matches any.
        """
        node = self.nodes.get(path)
        if node is None:
            raise missing_error(path)
        if node.acl is not OPEN_ACL:
            check_access(node.acl, Permission.WRITE, identities, path)
        if version != -1 and version != node.version:
            raise BadVersion(path)
        if self._undo is not None:
            self._undo.append((self._undo_set_data, (node, node.data, node.version, node.mzxid, node.mtime_ms)))
        self.quota.held_bytes += data_size(data) - data_size(node.data)
        node.data = self._shared(data)
        node.version = int32(node.version + 1)
        node.mzxid = zxid
        node.mtime_ms = time_ms
        self.changed.add(path)
        return node

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int, identities: Sequence[Identity]) -> Znode:
        """Replace a znode's ACL.

        :param version: expected ACL version; -1 matches any.
        """
        node = self.nodes.get(path)
        if node is None:
            raise missing_error(path)
        check_access(node.acl, Permission.ADMIN, identities, path)
        if version not in (-1, node.acl_version):
            raise BadVersion(path)
        self.quota.held_bytes += acl_size(acl) - acl_size(node.acl)
        node.acl = acl
        node.acl_version = int32(node.acl_version + 1)
        self.changed.add(path)
        return node

    def check(self, path: str, version: int, identities: Sequence[Identity]) -> None:
        """Raise an error unless the znode exists and has this version (-1 matches any)."""
        node = self.nodes.get(path)
        if node is None:
            raise missing_error(path)
        check_access(node.acl, Permission.READ, identities, path)
        if version not in (-1, node.version):
            raise BadVersion(path)

    # --- atomic groups of changes ---

    def begin(self) -> None:
        """Start recording changes for ``roll_back``."""
        self._undo = []

    def commit(self) -> None:
        """Keep the changes since ``begin``."""
        self._undo = None

    def roll_back(self) -> None:
        """Undo the changes since ``begin``, newest first."""
        undo, self._undo = self._undo or [], None
        for step, arguments in reversed(undo):
            step(*arguments)

    def _undo_create(self, node: Znode, parent: Znode, pzxid: int) -> None:
        self._detach(node)
        parent.creates = int32(parent.creates - 1)
        parent.pzxid = pzxid

    def _undo_delete(self, node: Znode, parent: Znode, pzxid: int) -> None:
        self._attach(node)
        parent.creates = int32(parent.creates - 1)
        parent.pzxid = pzxid

    def _undo_set_data(self, node: Znode, data: bytes | None, version: int, mzxid: int, mtime_ms: int) -> None:
        self.quota.held_bytes += data_size(data) - data_size(node.data)
        node.data, node.version, node.mzxid, node.mtime_ms = data, version, mzxid, mtime_ms

    def _shared(self, data: bytes | None) -> bytes | None:
        """Return an equal object in use for small data: the states of many partitions are equal."""
        if data is None or len(data) > _SHARED_DATA_BYTES_MAX:
            return data
        shared = self._shared_data
        if len(shared) > _SHARED_VALUES_MAX:
            shared.clear()
        return shared.setdefault(data, data)

    # --- indexes ---

    def restore(self, rows: Iterable[ZnodeRow]) -> None:
        """Restore znodes from a store; parents may follow their children.

        :raise KeyError: if a parent is missing, which means that the store is corrupt.
        """
        restored = []
        shared: dict[int, int] = {}
        share = shared.setdefault
        for path, data, acl, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, creates, acl_version, owner in rows:
            if len(shared) > _SHARED_VALUES_MAX:
                shared.clear()
            acl = OPEN_ACL if acl is None else self.acls.share(acl)
            node = Znode(path, self._shared(data), acl, owner, share(czxid, czxid), share(ctime_ms, ctime_ms))
            node.mzxid, node.pzxid, node.mtime_ms = share(mzxid, mzxid), share(pzxid, pzxid), share(mtime_ms, mtime_ms)
            node.version, node.creates, node.acl_version = version, creates, acl_version
            known = self.nodes.get(path)
            if known is not None:
                node.children = known.children
                self.quota.remove(known)
            self.quota.add(node)
            self.nodes[path] = node
            restored.append(node)
        restored.sort(key=lambda node: node.czxid)
        for node in restored:
            if node.path != ROOT:
                self.nodes[parent_of(node.path)].add_child(node.path[node.path.rfind("/") + 1 :])
            if node.owner:
                self._index_owner(node)

    def _attach(self, node: Znode) -> None:
        self.nodes[node.path] = node
        self.quota.add(node)
        if node.path != ROOT:
            parent = self.nodes[parent_of(node.path)]
            parent.add_child(node.path[node.path.rfind("/") + 1 :])
            parent.creates = int32(parent.creates + 1)
        if node.owner:
            self._index_owner(node)

    def _index_owner(self, node: Znode) -> None:
        if node.owner > 0:
            self.ephemerals.setdefault(node.owner, {})[node.path] = None
        else:
            self.expendable[node.path] = None

    def _detach(self, node: Znode) -> None:
        path = node.path
        del self.nodes[path]
        self.quota.remove(node)
        self.nodes[parent_of(path)].remove_child(path[path.rfind("/") + 1 :])
        if node.owner > 0:
            own = self.ephemerals[node.owner]
            del own[path]
            if not own:
                del self.ephemerals[node.owner]
        elif node.owner:
            del self.expendable[path]
