"""Builds a standalone cluster from the command-line options, and prints its banner once it has started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kreplica.runtime import real_runtime
from kreplica.runtime.lean_polling import install_lean_polling
from kreplica.service.process.data_directories import check_owners
from kreplica.service.standalone.secured import SecuredCluster
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig


class StandaloneProcess:
    """A standalone cluster that prints its banner after the start."""

    def __init__(self, standalone: Standalone) -> None:
        self._standalone = standalone

    async def start(self) -> None:
        await self._standalone.start()
        # Printed, since twistd would put a timestamp before each line of a log event.
        print(self._standalone.describe(), file=sys.__stdout__, flush=True)

    async def stop(self) -> None:
        await self._standalone.stop()


def standalone_from_options(reactor: Any, options: dict[str, Any], failed: Callable[[str], None]) -> StandaloneProcess:
    check_owners([options["data-dir"]])
    directory = os.path.abspath(options["data-dir"])
    secured = None
    if options["secured"]:
        secured = SecuredCluster(Path(directory, "security"), options["advertised-host"])
    config = StandaloneConfig(
        data_directory=directory,
        brokers=options["brokers"],
        port=options["port"],
        admin_port=options["admin-port"],
        coordinator_port=options["coordinator-port"],
        overrides=tuple(options["overrides"]),
        first_broker_id=options["first-broker-id"],
        advertised_host=options["advertised-host"],
        rack=socket.gethostname() if options["processes"] else None,
        secured=secured,
    )
    runtime = real_runtime(reactor)
    if options["processes"]:
        from kreplica.service.standalone.broker_processes import ProcessesStandalone

        return StandaloneProcess(ProcessesStandalone(runtime, config, options["log-format"], failed=failed))
    if config.brokers == 1:
        # A single broker needs no virtual host: it uses the reactor directly, and log lines need no broker name.
        install_lean_polling(reactor)
        return StandaloneProcess(Standalone(runtime, config, failed=failed))
    from kreplica.service.standalone.hosted_standalone import HostedStandalone

    return StandaloneProcess(HostedStandalone(runtime, config, failed=failed))
