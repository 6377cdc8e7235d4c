"""The ``kreplica`` command in its own process, and a cluster that ``kreplica start`` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.server_process import free_ports


def kreplica_command(*words: object) -> list[str]:
    """Return the command line, with the current Python interpreter."""
    return [sys.executable, "-m", "kreplica.cli", *map(str, words)]


def run_kreplica(
    *words: object, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command until it exits."""
    return subprocess.run(
        kreplica_command(*words),
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def port_options(brokers: int = 1) -> list[object]:
    """Return options with free ports for a cluster."""
    ports = free_ports(brokers + 2, consecutive=brokers)
    return ["--port", ports[0], "--admin-port", ports[-2], "--zookeeper-port", ports[-1]]


def processes_of(directory: Path) -> dict[int, int]:
    """Return the CPU ticks of each process whose command line contains a directory, by process ID."""
    ticks_by_process = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                if os.fsencode(directory) in (place / "cmdline").read_bytes():
                    fields = (place / "stat").read_text().rpartition(")")[2].split()
                    ticks_by_process[int(place.name)] = int(fields[11]) + int(fields[12])
            except (FileNotFoundError, ProcessLookupError):
                pass
    return ticks_by_process


def waits_for_the_machine(process_id: int) -> bool:
    """Return True if a process is waiting for a CPU or a disk, which can take seconds on a busy machine."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] in "RD"
    except (FileNotFoundError, ProcessLookupError):
        return False
