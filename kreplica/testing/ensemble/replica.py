"""State of one server: znodes, sessions and watches up to its last applied transaction."""

from __future__ import annotations

from kreplica.testing.ensemble.transactions import Change, SessionClosed, SessionOpened, Transaction
from kreplica.zookeeper.embedded.access import Identity
from kreplica.zookeeper.embedded.commits import Group, ResponseQueue
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.sessions import SessionRow
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Watches
from kreplica.zookeeper.embedded.writes import Requester, Writes
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import Opcode
from kreplica.zookeeper.requests import SetAcl, decode_request


class AppliedTransactions:
    """Implements the ZooKeeper server's ``Commits``: responses depend only on transactions that are already applied.

    :ivar notified: connections that received responses or watch events, which must be flushed.
    """

    def __init__(self, zxid: int) -> None:
        self.durable = Group(zxid)
        self.notified: dict[ResponseQueue, None] = {}

    @property
    def zxid(self) -> int:
        """ID of the last applied transaction."""
        return self.durable.zxid

    @zxid.setter
    def zxid(self, zxid: int) -> None:
        self.durable.zxid = zxid

    def sink_for_change(self, connection: ResponseQueue) -> list[bytes]:
        self.notified[connection] = None
        return connection.sink

    def sink_for_znode(self, connection: ResponseQueue, path: str) -> list[bytes]:
        return connection.sink

    def sink_for_tree(self, connection: ResponseQueue) -> list[bytes]:
        return connection.sink

    def transaction_applied(self) -> None:
        """Do nothing: transactions are committed before a replica applies them."""


class ReplayedRequester:
    """Requester of a committed write; its response is discarded."""

    def __init__(self, session_id: int, identities: tuple[Identity, ...], applied: Group) -> None:
        self.session_id = session_id
        self.identities = identities
        self.sink: list[bytes] = []
        self.barrier = applied

    def release(self, responses: list[bytes], durable: Group | None) -> None:
        """Do nothing."""

    def count_unsent(self, size: int) -> None:
        """Do nothing."""


class Replica:
    """Znodes, sessions and watches.

    :ivar watches: watches of the clients of this server.
    :ivar sessions: open sessions by ID.
    """

    def __init__(self, tree: Tree | None = None, sessions: dict[int, SessionRow] | None = None, zxid: int = 0) -> None:
        self.tree = tree or Tree()
        self.sessions = sessions or {}
        self.watches: Watches[Connection] = Watches()
        self.commits = AppliedTransactions(zxid)
        self._time_ms = 0
        self.writes = Writes(self.tree, self.watches, self.commits, lambda: self._time_ms)

    @property
    def zxid(self) -> int:
        return self.commits.zxid

    def without_watches(self) -> Replica:
        """Return the replica of the server's next process, which continues with the same state."""
        return Replica(self.tree, self.sessions, self.zxid)

    def copy(self) -> Replica:
        """Return an independent replica without watches."""
        tree = Tree()
        tree.restore(node.row() for node in self.tree.nodes.values())
        return Replica(tree, dict(self.sessions), self.zxid)

    def write(self, requester: Requester, xid: int, opcode: int, body: bytes, time_ms: int) -> None:
        """Execute a client's write, and add the response to the requester's sink.

        :raise ZooKeeperError: the write failed; nothing was changed.
        """
        self._time_ms = time_ms
        if opcode == Opcode.MULTI:
            self.writes.multi(requester, xid, opcode, body, 0, len(body))
        elif opcode == Opcode.SET_ACL:
            request = decode_request(opcode, Reader(body, 0, len(body), "request"))
            assert isinstance(request, SetAcl)
            self.writes.set_acl(requester, xid, request)
        else:
            self.writes.change(requester, xid, opcode, body, 0, len(body))
        self.tree.changed.clear()

    def apply(self, transaction: Transaction) -> None:
        """Apply the next committed transaction and fire its watches."""
        assert transaction.zxid > self.zxid, f"{transaction} after 0x{self.zxid:x}"
        self.commits.zxid = transaction.zxid - 1
        if isinstance(transaction, Change):
            requester = ReplayedRequester(transaction.session_id, transaction.identities, self.commits.durable)
            self.write(requester, 0, transaction.opcode, transaction.body, transaction.time_ms)
        elif isinstance(transaction, SessionOpened):
            self.sessions[transaction.row.session_id] = transaction.row
        elif isinstance(transaction, SessionClosed):
            self.sessions.pop(transaction.session_id, None)
            self.writes.remove(list(self.tree.ephemerals.get(transaction.session_id, ())))
        self.commits.zxid = transaction.zxid

    def flush(self) -> None:
        """Send the watch events of the applied transactions."""
        notified, self.commits.notified = self.commits.notified, {}
        for connection in notified:
            if isinstance(connection, Connection):
                connection.flush()
