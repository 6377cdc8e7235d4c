"""Builds a standalone cluster from the command-line options, and prints its banner once it has started."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kreplica import __version__
from kreplica.runtime import Runtime, real_runtime
from kreplica.runtime.interpreter import interpreter
from kreplica.runtime.lean_polling import install_lean_polling
from kreplica.service.process.banner import banner
from kreplica.service.process.data_directories import make_data_directory
from kreplica.service.process.settings_overrides import overrides_of
from kreplica.service.standalone.data_directory_lock import READY, STOPPING, DirectoryClaim, claim_directory
from kreplica.service.standalone.secured import SecuredCluster
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig


class StandaloneProcess:
    """A standalone cluster that locks its data directory, and prints its banner once it has started."""

    def __init__(self, standalone: Standalone, claim: DirectoryClaim) -> None:
        self._standalone = standalone
        self._claim = claim

    async def start(self) -> None:
        await self._standalone.start()
        addresses = self._standalone.addresses()
        self._claim.update(
            state=READY,
            bootstrap_servers=addresses.bootstrap_servers,
            admin_url=addresses.admin_url,
            coordinator=addresses.coordinator,
            security_directory=addresses.security_directory,
        )
        # Printed instead of logged, since twistd would put a timestamp before each line.
        print(banner(__version__, addresses, str(interpreter())), file=sys.__stdout__, flush=True)

    async def stop(self) -> None:
        with suppress(OSError):  # a full disk, for example, must not prevent a graceful stop
            self._claim.update(state=STOPPING)
        try:
            await self._standalone.stop()
        finally:
            self._claim.release()


def standalone_from_options(
    reactor: Any, options: dict[str, Any], on_failure: Callable[[str], None]
) -> StandaloneProcess:
    """Return the standalone cluster that the command-line options describe.

    :raise SettingsError: a setting is invalid, or the data directory cannot be used, for example because a cluster is
        already running on it.
    """
    runtime = real_runtime(reactor)
    config = StandaloneConfig(
        data_directory=os.path.abspath(options["data-dir"]),
        brokers=options["brokers"],
        port=options["port"],
        admin_port=options["admin-port"],
        zookeeper_port=options["zookeeper-port"],
        overrides=overrides_of(options),
        bootstrap_port=options["bootstrap-port"] or 0,
        first_broker_id=options["first-broker-id"],
        advertised_host=options["advertised-host"],
        interface=options["interface"],
        rack=socket.gethostname() if options["processes"] else None,
    )
    # Settings are validated before the data directory is created.
    config.broker_settings(config.first_broker_id, config.zookeeper_port, config.admin_port)
    make_data_directory(config.data_directory)
    claim = claim_directory(Path(config.data_directory), __version__, runtime.wall_clock_ms())
    try:
        if options["secured"]:
            secured = SecuredCluster(Path(config.data_directory, "security"), config.advertised_host)
            config = replace(config, secured=secured)
        return StandaloneProcess(_standalone(runtime, config, options, on_failure), claim)
    except BaseException:
        claim.release()
        raise


def _standalone(
    runtime: Runtime, config: StandaloneConfig, options: dict[str, Any], on_failure: Callable[[str], None]
) -> Standalone:
    if options["processes"]:
        from kreplica.service.standalone.broker_processes import ProcessesStandalone

        return ProcessesStandalone(runtime, config, options["log-format"], on_failure=on_failure)
    if config.brokers == 1:
        # A single broker needs no virtual host: it uses the reactor directly, and its log lines need no broker name.
        settings = config.broker_settings(config.first_broker_id, config.zookeeper_port, config.admin_port)
        install_lean_polling(runtime.reactor, settings["kreplica.busy.poll.max.us"] / 1e6)
        return Standalone(runtime, config, on_failure=on_failure)
    from kreplica.service.standalone.hosted_standalone import HostedStandalone

    return HostedStandalone(runtime, config, on_failure=on_failure)
