"""Network namespaces for each broker and the coordinator, with kernel links, on systems that permit them.

A link is cut at its source with an Ethernet address that does not exist: packets are sent and silently lost, including
the kernel's own packets.  Names of namespaces and links start with ``kr`` and the process ID.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from kreplica.errors import KreplicaError
from tests.support.broker_process import Place
from tests.support.links import CLIENTS, COORDINATOR, node_pairs

UNUSED_ADDRESS = "02:00:00:00:00:01"
BROKER_PORT = 9092
CLIENTS_HOST = 254


class NamespacesUnavailable(KreplicaError):
    """Namespaces cannot be created or changed here; the message names the command that failed."""


class NamespaceLinks:
    """``Links`` between namespaces on one bridge; clients use the bridge itself.

    :param brokers: number of brokers; their IDs are 1 to N.
    """

    def __init__(self, brokers: int = 3) -> None:
        self._name = f"kr{os.getpid()}"
        self._subnet = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
        self._nodes = [COORDINATOR, *range(1, brokers + 1)]
        self._lost: set[tuple[int, int]] = set()

    def host(self, node: int) -> str:
        """Return the address of a broker, of the coordinator or of the clients."""
        return f"{self._subnet}.{CLIENTS_HOST if node == CLIENTS else node + 1}"

    def command_prefix(self, node: int) -> tuple[str, ...]:
        """Return the command prefix that runs a command in a node's namespace; empty for clients."""
        return () if node == CLIENTS else ("ip", "netns", "exec", self._namespace(node))

    def places(self, zookeeper: str) -> dict[int, Place]:
        """Return the addresses of each broker.

        :param zookeeper: address of the coordinator, which must run in its namespace and listen on its address.
        """
        return {
            node: Place(
                self.host(node), BROKER_PORT, self.host(node), BROKER_PORT, zookeeper, self.command_prefix(node)
            )
            for node in self._nodes
            if node != COORDINATOR
        }

    def attach(self, pids: Callable[[], Mapping[int, int]]) -> None:
        """Do nothing: processes are identified by their namespace."""

    def cut_one_way(self, sources: Iterable[int], destinations: Iterable[int]) -> None:
        """Take down all links from the sources to the destinations."""
        for source, destination in node_pairs(sources, destinations):
            self._lost.add((source, destination))
            device = ("dev", self._device(source))
            self._in(source, "neigh", "replace", self.host(destination), "lladdr", UNUSED_ADDRESS, *device, "nud",
                    "permanent")  # fmt: skip

    def heal(self) -> None:
        """Bring all links up again."""
        for source, destination in sorted(self._lost):
            self._in(source, "neigh", "del", self.host(destination), "dev", self._device(source))
        self._lost.clear()

    def __enter__(self) -> Self:
        try:
            self._ip("link", "add", self._name, "type", "bridge")
            self._ip("addr", "add", f"{self.host(CLIENTS)}/24", "dev", self._name)
            self._ip("link", "set", self._name, "up")
            for node in self._nodes:
                self._add(node)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def _add(self, node: int) -> None:
        name = self._namespace(node)
        self._ip("netns", "add", name)
        self._ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("link", "set", name, "master", self._name, "up")
        self._in(node, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
        self._in(node, "link", "set", "lo", "up")
        self._in(node, "link", "set", "eth0", "up")

    def _remove(self) -> None:
        # Links first, because the kernel deletes the links of a deleted namespace later, in the background.
        links = [("link", "del", name) for name in (*map(self._namespace, self._nodes), self._name)]
        for words in [*links, *(("netns", "del", self._namespace(node)) for node in self._nodes)]:
            subprocess.run(["ip", *words], capture_output=True, check=False)  # fails for devices that were not created

    def _namespace(self, node: int) -> str:
        """Return the name of a node's namespace, which is also the name of the bridge end of its link."""
        return f"{self._name}-{node}"

    def _device(self, node: int) -> str:
        return self._name if node == CLIENTS else "eth0"

    def _in(self, node: int, *words: str) -> None:
        self._ip(*(() if node == CLIENTS else ("-n", self._namespace(node))), *words)

    def _ip(self, *words: str) -> None:
        result = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if result.returncode:
            raise NamespacesUnavailable(f"ip {' '.join(words)}: {result.stderr.strip()}")


def are_permitted() -> bool:
    """Return True if this process may create namespaces and links."""
    try:
        with NamespaceLinks(0):
            return True
    except (OSError, NamespacesUnavailable):
        return False
