"""ZooKeeper's four-letter words: status commands such as ``echo ruok | nc host port``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from importlib.metadata import PackageNotFoundError, version
from platform import machine, python_version, release, system
from typing import TYPE_CHECKING

from kreplica.zookeeper.embedded.commits import GroupCommit
from kreplica.zookeeper.embedded.sessions import Sessions
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Watches

if TYPE_CHECKING:
    from kreplica.zookeeper.embedded.connection import Connection
    from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings

# Supported protocol version; clients read it from ``envi`` and ``srvr``.
ZOOKEEPER_VERSION = "3.9.0"


class FourLetterWords:
    """Responds to four-letter words; one per server.

    :param settings: shown by ``conf``.
    :param connections: the open connections.
    :param rejected: returns the number of connections rejected because of a limit.
    """

    def __init__(
        self,
        tree: Tree,
        sessions: Sessions,
        watches: Watches[Connection],
        commits: GroupCommit,
        settings: ZooKeeperServerSettings,
        connections: Collection[Connection],
        rejected: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._watches = watches
        self._commits = commits
        self._settings = settings
        self._connections = connections
        self._rejected = rejected
        self._words: dict[bytes, Callable[[], str]] = {
            b"ruok": lambda: "imok",
            b"isro": lambda: "rw",
            b"conf": self._conf,
            b"cons": self._cons,
            b"dump": self._dump,
            b"envi": self._envi,
            b"mntr": self._mntr,
            b"srvr": self._srvr,
            b"stat": self._stat,
            b"wchs": self._wchs,
        }

    def respond(self, word: bytes) -> bytes | None:
        """Return the response, or None if the word is unknown."""
        command = self._words.get(word)
        return None if command is None else command().encode()

    def _conf(self) -> str:
        settings = {
            "tickTime": self._settings.tick_time_ms,
            "maxClientCnxns": self._settings.address_connections_max,
            "maxCnxns": self._settings.connections_max,
            "minSessionTimeout": self._sessions.timeout_ms_min,
            "maxSessionTimeout": self._sessions.timeout_ms_max,
            "jute.maxbuffer": self._settings.frame_size_max,
            "quotaBytes": self._settings.quota.bytes_max,
            "quotaCount": self._settings.quota.count_max,
        }
        return _lines(f"{name}={value}" for name, value in settings.items())

    def _cons(self) -> str:
        return _lines(self._connection_lines())

    def _connection_lines(self) -> list[str]:
        return [
            f" /{each.name}[1](queued={len(each.sink)},recved={each.received},sid=0x{each.session_id:x},"
            f"to={each.session.timeout_ms if each.session else 0})"
            for each in self._connections
        ]

    def _dump(self) -> str:
        lines = ["SessionTracker dump:", f"Session Sets ({len(self._sessions.by_id)}):"]
        lines += [f"0x{each.session_id:x}\t{each.timeout_ms}ms" for each in self._sessions.by_id.values()]
        lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(self._tree.ephemerals)}):"]
        for session_id, paths in self._tree.ephemerals.items():
            lines += [f"0x{session_id:x}:", *(f"\t{path}" for path in paths)]
        lines.append("Connections dump:")
        return _lines([*lines, *self._connection_lines()])

    def _envi(self) -> str:
        return _lines(
            [
                "Environment:",
                f"zookeeper.version={_version()}",
                f"python.version={python_version()}",
                f"os.name={system()}",
                f"os.arch={machine()}",
                f"os.version={release()}",
            ]
        )

    def _mntr(self) -> str:
        tree, watches = self._tree, self._watches
        metrics = {
            "version": _version(),
            "server_state": "standalone",
            "num_alive_connections": len(self._connections),
            "global_sessions": len(self._sessions.by_id),
            "connection_rejected": self._rejected(),
            "znode_count": len(tree.nodes),
            "approximate_data_size": tree.quota.held_bytes,
            "quota_exceeded_error_count": tree.quota.rejected,
            "watch_count": len(watches.data) + len(watches.children),
            "ephemerals_count": sum(map(len, tree.ephemerals.values())),
            "last_zxid": self._commits.zxid,
            "durable_zxid": self._commits.durable.zxid,
            "outstanding_requests": self._waiting(),
        }
        return _lines(f"zk_{name}\t{value}" for name, value in metrics.items())

    def _waiting(self) -> int:
        groups = [group for group in (self._commits.gathering, self._commits.in_flight) if group is not None]
        return sum(len(responses) for group in groups for responses in group.responses.values())

    def _srvr(self) -> str:
        return _lines([f"Zookeeper version: {_version()}", *self._state_lines()])

    def _stat(self) -> str:
        clients = ["Clients:", *self._connection_lines(), ""]
        return _lines([f"Zookeeper version: {_version()}", *clients, *self._state_lines()])

    def _state_lines(self) -> list[str]:
        connections = self._connections
        return [
            f"Received: {sum(each.received for each in connections)}",
            f"Connections: {len(connections)}",
            f"Outstanding: {self._waiting()}",
            f"Zxid: 0x{self._commits.zxid:x}",
            "Mode: standalone",
            f"Node count: {len(self._tree.nodes)}",
        ]

    def _wchs(self) -> str:
        tables = (self._watches.data, self._watches.children)
        watchers = {watcher for table in tables for watcher in table.by_watcher}
        paths = {path for table in tables for path in table.by_path}
        return _lines(
            [
                f"{len(watchers)} connections watching {len(paths)} paths",
                f"Total watches:{sum(map(len, tables))}",
            ]
        )


def _version() -> str:
    try:
        kreplica_version = version("kreplica")
    except PackageNotFoundError:
        kreplica_version = "unknown"
    return f"{ZOOKEEPER_VERSION}-kreplica-{kreplica_version}, built on Twisted"


def _lines(lines: Iterable[str]) -> str:
    return "".join(line + "\n" for line in lines)
