"""Builds a standalone from the command line's options, and prints its banner once it has started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from kreplica.runtime import real_runtime
from kreplica.runtime.lean_polling import poll_leanly
from kreplica.service.process.data_directories import check_owners
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig


class StandaloneProcess:
    """A standalone that has the process for itself, and greets whoever started it."""

    def __init__(self, standalone: Standalone) -> None:
        self._standalone = standalone

    async def start(self) -> None:
        await self._standalone.start()
        # Not through the log: a banner is for people, and twistd would put a time before each line.
        print(self._standalone.describe(), file=sys.__stdout__, flush=True)

    async def stop(self) -> None:
        await self._standalone.stop()


def standalone_from_options(reactor: Any, options: dict[str, Any], failed: Callable[[str], None]) -> StandaloneProcess:
    check_owners([options["data-dir"]])
    config = StandaloneConfig(
        data_directory=os.path.abspath(options["data-dir"]),
        brokers=options["brokers"],
        port=options["port"],
        admin_port=options["admin-port"],
        coordinator_port=options["coordinator-port"],
        overrides=tuple(options["overrides"]),
        first_broker_id=options["first-broker-id"],
        advertised_host=options["advertised-host"],
        rack=socket.gethostname() if options["processes"] else None,
    )
    runtime = real_runtime(reactor)
    if options["processes"]:
        from kreplica.service.standalone.broker_processes import ProcessesStandalone

        return StandaloneProcess(ProcessesStandalone(runtime, config, options["log-format"], failed=failed))
    if config.brokers == 1:
        # Nobody would be left to see it go: it has the reactor for itself, with nothing between, and no log line has to
        # say whose it is.
        poll_leanly(reactor)
        return StandaloneProcess(Standalone(runtime, config, failed=failed))
    from kreplica.service.standalone.hosted_standalone import HostedStandalone

    return StandaloneProcess(HostedStandalone(runtime, config, failed=failed))
