"""Hosts of one schedule: network namespaces, small disks, boot IDs and clocks that a test can change."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import replace
from pathlib import Path

from tests.support.broker_process import Place
from tests.support.namespaces import NamespaceLinks
from tests.support.real_zookeeper import ServerPlace

BROKERS = (1, 2, 3)
ZOOKEEPERS = (4, 5, 6)
DISK_SIZE = 64 << 20

_WITH_BOOT_ID = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
_FAKETIME_PATHS = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")


class Hosts:
    """Three hosts for brokers and three for ZooKeeper; a context manager that removes everything it created.

    :ivar links: the network between the hosts; clients run on the bridge.
    """

    def __init__(self, directory: Path) -> None:
        self.links = NamespaceLinks(len(BROKERS) + len(ZOOKEEPERS))
        self._directory = directory
        self._mounted: list[Path] = []

    def __enter__(self) -> Hosts:
        self.links.__enter__()
        try:
            for broker_id in BROKERS:
                self._mount(self.disk(broker_id))
                self.restart_machine(broker_id)
                self.set_clock(broker_id, 0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker_id in BROKERS:
            self.restore_network(broker_id)
        self.links.__exit__(None, None, None)
        for path in self._mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=False)

    def zookeeper_places(self) -> list[ServerPlace]:
        """Return the ``ServerPlace`` of each ZooKeeper server."""
        return [ServerPlace(self.links.host(node), self.links.command_prefix(node)) for node in ZOOKEEPERS]

    def broker_places(self, zookeeper: str) -> dict[int, Place]:
        """Return the ``Place`` of each broker, with its own boot ID and clock.

        :param zookeeper: the connect string.
        """
        places = self.links.places(zookeeper)
        return {
            broker_id: replace(
                places[broker_id],
                command_prefix=(
                    *places[broker_id].command_prefix,
                    *("unshare", "--mount", "sh", "-c", _WITH_BOOT_ID, str(self._file(broker_id, "boot_id"))),
                    *self._clock_prefix(broker_id),
                ),
            )
            for broker_id in BROKERS
        }

    # --- machines ---

    def restart_machine(self, broker_id: int) -> None:
        """Give the machine a new boot ID, as a power cut does; the broker reads it when it starts."""
        self._file(broker_id, "boot_id").write_text(f"{uuid.uuid4()}\n")

    def set_clock(self, broker_id: int, offset_s: int) -> None:
        """Set the wall clock of a running broker to the true time plus an offset."""
        self._file(broker_id, "clock").write_text(f"{offset_s:+d}s\n")

    # --- disks ---

    def disk(self, broker_id: int) -> Path:
        """Return the mount point of the broker's file system."""
        return self._directory / f"disk-{broker_id}"

    def fill_disk(self, broker_id: int) -> None:
        """Write until the disk is full."""
        with open(self.disk(broker_id) / "filling", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass

    def free_disk(self, broker_id: int) -> None:
        (self.disk(broker_id) / "filling").unlink(missing_ok=True)

    # --- network ---

    def lose_packets(self, broker_id: int, percent: int) -> None:
        """Drop this percentage of the packets from and to a broker's host."""
        rules = (
            "add table ip loss; "
            "add chain ip loss in { type filter hook input priority 0; }; "
            "add chain ip loss out { type filter hook output priority 0; }; "
            f"add rule ip loss in numgen random mod 100 < {percent} drop; "
            f"add rule ip loss out numgen random mod 100 < {percent} drop"
        )
        self._run(broker_id, "nft", rules)

    def slow_down(self, broker_id: int, kilobits_per_s: int) -> None:
        """Limit the bandwidth of a broker's outgoing packets, so that they are late by up to 400 ms."""
        rate = f"rate {kilobits_per_s}kbit burst 16kb latency 400ms"
        self._run(broker_id, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *rate.split())

    def restore_network(self, broker_id: int) -> None:
        """Undo ``lose_packets`` and ``slow_down``; does nothing if neither was called."""
        for words in (["nft", "delete table ip loss"], ["tc", "qdisc", "del", "dev", "eth0", "root"]):
            self._run(broker_id, *words, check=False)

    def _run(self, broker_id: int, *words: str, check: bool = True) -> None:
        command = [*self.links.command_prefix(broker_id), *words]
        subprocess.run(command, check=check, capture_output=True)

    def _mount(self, path: Path) -> None:
        path.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(path)], check=True)
        self._mounted.append(path)

    def _file(self, broker_id: int, name: str) -> Path:
        return self._directory / f"{name}-{broker_id}"

    def _clock_prefix(self, broker_id: int) -> tuple[str, ...]:
        library = faketime_library()
        if library is None:
            return ()
        settings = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": self._file(broker_id, "clock"),
            "FAKETIME_NO_CACHE": 1,
            "DONT_FAKE_MONOTONIC": 1,
            "FAKETIME_DISABLE_SHM": 1,
        }
        return ("env", *(f"{name}={value}" for name, value in settings.items()))


def faketime_library() -> str | None:
    """Return the library that changes a process's wall clock (Debian's ``libfaketime``), None if it is missing."""
    return next((path for path in _FAKETIME_PATHS if os.path.exists(path)), None)
