"""Runs the embedded ZooKeeper server (``twistd kreplica coordinator``) as a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.python.failure import Failure

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime, real_runtime
from kreplica.service.process.data_directories import make_data_directory
from kreplica.service.process.private_files import warn_of_readable_files
from kreplica.service.process.zookeeper_security import secret_files, zookeeper_security
from kreplica.settings.zookeeper_settings import load_zookeeper_settings
from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper, TlsListener
from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings


class ZooKeeperProcess:
    """The embedded ZooKeeper server as a process.

    :param runtime: its worker threads are stopped with the server.
    :param failed: called with a one-line reason if the store fails.
    :param tls: a second listener, with TLS.
    """

    def __init__(
        self,
        runtime: Runtime,
        data_directory: str,
        *,
        port: int,
        interface: str,
        failed: Callable[[str], None],
        settings: ZooKeeperServerSettings | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        self._runtime = runtime
        self._data_directory = data_directory
        self._server = EmbeddedZooKeeper(
            runtime,
            data_directory,
            port=port,
            interface=interface,
            settings=settings,
            on_failure=partial(zookeeper_failed, failed),
            tls=tls,
        )
        self._configured_port = port
        self._interface = interface
        self._tls = tls

    async def start(self) -> None:
        await start_zookeeper(self._server, self._interface, self._configured_port, "--port")
        encrypted = "" if self._tls is None else f" and {self._tls.interface}:{self._server.tls_port} (TLS)"
        print(
            f"the embedded ZooKeeper server is ready on {self._interface}:{self._server.port}{encrypted}, "
            f"its data is in {self._data_directory}",
            file=sys.__stdout__,
            flush=True,
        )

    async def stop(self) -> None:
        await self._server.stop()
        self._runtime.offload.stop()


async def start_zookeeper(server: EmbeddedZooKeeper, interface: str, port: int, option: str) -> None:
    """Start the embedded ZooKeeper server.

    :raise SettingsError: the port is in use; the message names the option that changes it.
    """
    try:
        await server.start()
    except CannotListenError as error:
        raise SettingsError(
            f"the embedded ZooKeeper server cannot listen on {interface}:{port}: {error.socketError}; "
            f"choose another port with {option}"
        ) from None


def zookeeper_failed(failed: Callable[[str], None], failure: Failure) -> None:
    """Report that the store failed, so that the process ends: the server can no longer guarantee durability."""
    failed(f"the embedded ZooKeeper server cannot store its state: {failure.getErrorMessage()}")


def zookeeper_from_options(
    reactor: Any, options: dict[str, Any], failed: Callable[[str], None]
) -> ZooKeeperProcess:
    """Return the server that the command-line options describe.

    :raise SettingsError: a setting is invalid, another user controls the data directory, or other machines could
        connect and not authenticate.
    """
    make_data_directory(options["data-dir"])
    values = load_zookeeper_settings(options["config"], options["overrides"])
    warn_of_readable_files(secret_files(options["config"], values))
    runtime = real_runtime(reactor)
    try:
        security = zookeeper_security(runtime, values, options["interface"])
    except SettingsError:
        runtime.offload.stop()
        raise
    return ZooKeeperProcess(
        runtime,
        os.path.abspath(options["data-dir"]),
        port=options["port"],
        interface=options["interface"],
        failed=failed,
        settings=ZooKeeperServerSettings(
            address_connections_max=options["address-connections-max"],
            quota=QuotaBounds(bytes_max=options["znode-bytes-max"], count_max=options["znodes-max"]),
            users=security.users,
            anonymous=security.anonymous,
        ),
        tls=security.tls,
    )
