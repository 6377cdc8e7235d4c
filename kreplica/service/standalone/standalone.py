"""An embedded ZooKeeper server and its brokers, started and stopped together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import make_directories_durably
from kreplica.runtime.gather import gather
from kreplica.service.broker.coordinators import internal_topic_settings
from kreplica.service.composition.broker import Broker
from kreplica.service.composition.stopping import stop_all
from kreplica.service.process.banner import ClusterAddresses
from kreplica.service.process.zookeeper_process import start_zookeeper, zookeeper_failed
from kreplica.service.standalone.secured import SecuredCluster
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.settings.overrides import Override
from kreplica.storage.formats.checkpoints import META_PROPERTIES, read_meta_properties
from kreplica.zookeeper.embedded.server import EmbeddedZooKeeper
from kreplica.zookeeper.embedded.store import Store

HOST = "127.0.0.1"

SESSION_TIMEOUT_MS = 6000
"""Session timeout in clusters with several brokers; short, because users watch the failover after a kill."""


@dataclass(frozen=True, slots=True)
class StandaloneConfig:
    """Options of ``twistd kreplica standalone``; port 0 lets the system choose a port.

    :param rack: ``broker.rack`` of all brokers; None to set no rack.
    :param bootstrap_port: port that all brokers share; 0 for none.
    :param first_broker_id: the ID of the first broker; the other brokers have consecutive IDs.
    :param advertised_host: the host name in advertised listeners.
    :param interface: the IP address on which brokers and the admin API listen; the ZooKeeper server uses loopback.
    :param secured: secrets and certificates of a cluster with TLS, SASL and ACLs; None for an open cluster.
    """

    data_directory: str
    brokers: int = 1
    port: int = 9092
    admin_port: int = 8080
    zookeeper_port: int = 2181
    overrides: tuple[str | Override, ...] = ()
    rack: str | None = None
    bootstrap_port: int = 0
    first_broker_id: int = 1
    advertised_host: str = HOST
    interface: str = HOST
    secured: SecuredCluster | None = None

    @property
    def broker_ids(self) -> range:
        """The IDs of all brokers."""
        return range(self.first_broker_id, self.first_broker_id + self.brokers)

    def broker_settings(self, broker_id: int, zookeeper_port: int, admin_port: int) -> BrokerSettings:
        """Return the settings of one broker.

        :raise SettingsError: an override is unknown or malformed.
        """
        text = self.settings_text(broker_id, zookeeper_port, admin_port)
        return BrokerSettings.from_text(text, self.overrides, origin="standalone")

    def settings_text(self, broker_id: int, zookeeper_port: int, admin_port: int) -> str:
        """Return the settings of ``broker_settings`` as text of a properties file, without the overrides."""
        port = self.port + self.broker_ids.index(broker_id) if self.port else 0
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.interface}:{port}",
            "log.dirs": os.path.join(self.data_directory, f"broker-{broker_id}"),
            "zookeeper.connect": f"{HOST}:{zookeeper_port}",
            "kreplica.admin.listener": f"{self.interface}:{admin_port}",
            **internal_topic_settings(self.brokers),
        }
        if self.secured is not None:
            settings |= self.secured.settings(f"{self.interface}:{port}", f"{self.advertised_host}:{port}")
        elif self.advertised_host != self.interface:
            settings["advertised.listeners"] = f"PLAINTEXT://{self.advertised_host}:{port}"
        if self.brokers > 1:
            settings["zookeeper.session.timeout.ms"] = str(SESSION_TIMEOUT_MS)
        if self.rack is not None:
            settings["broker.rack"] = self.rack
        if self.bootstrap_port:
            settings["kreplica.bootstrap.port"] = str(self.bootstrap_port)
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        return text.replace("\\", "\\\\")


class Standalone:
    """An embedded ZooKeeper server and brokers, started and stopped together.

    :param store: stores the state of the ZooKeeper server; by default, SQLite in the data directory.
    :param on_failure: called with a one-line reason when the ZooKeeper server cannot store its state, or a broker
        cannot continue.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StandaloneConfig,
        *,
        store: Store | None = None,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._store = store
        self._zookeeper_directory = os.path.join(config.data_directory, "coordinator")
        self.zookeeper = EmbeddedZooKeeper(
            runtime,
            self._zookeeper_directory,
            port=config.zookeeper_port,
            interface=HOST,
            settings=None if config.secured is None else config.secured.zookeeper_settings(),
            store=store,
            on_failure=None if on_failure is None else partial(zookeeper_failed, on_failure),
        )
        self._on_failure = on_failure
        self._brokers: list[Broker] = []

    @property
    def brokers(self) -> Sequence[Broker]:
        """The running brokers, ordered by ID."""
        return self._brokers

    async def start(self) -> None:
        """Start the ZooKeeper server, then the brokers.

        :raise KreplicaError: the start failed; the message gives the reason and what to do.
        """
        config = self._config
        # Settings are validated before anything is opened.
        config.broker_settings(config.first_broker_id, config.zookeeper_port, config.admin_port)
        if self._store is None:
            self._check_zookeeper_data()
        make_directories_durably(self._runtime.disk, config.data_directory)
        await start_zookeeper(self.zookeeper, HOST, config.zookeeper_port, "--zookeeper-port")
        await self._start_brokers()
        if config.secured is not None:
            await config.secured.create_admin(self.brokers[0])

    async def _start_brokers(self) -> None:
        """Start all brokers on the process's reactor."""
        ids = self._config.broker_ids
        self._brokers = [self._broker(each, self._runtime, self._admin_port(each)) for each in ids]
        # The first broker starts alone and becomes the controller, which the others then find.
        first, *others = self._brokers
        await first.start()
        await gather(broker.start() for broker in others)

    def _admin_port(self, broker_id: int) -> int:
        return self._config.admin_port if broker_id == self._config.first_broker_id else 0

    def _broker(self, broker_id: int, runtime: Runtime, admin_port: int) -> Broker:
        settings = self._config.broker_settings(broker_id, self.zookeeper.port, admin_port)
        return Broker(runtime, settings, self._on_failure)

    def _check_zookeeper_data(self) -> None:
        """Check that ZooKeeper data exists if broker data exists; otherwise the start would create an empty cluster.

        :raise SettingsError: the ZooKeeper data is missing; the message names the cluster.
        """
        disk = self._runtime.disk
        if disk.exists(self._zookeeper_directory):
            return
        for broker_id in self._config.broker_ids:
            path = os.path.join(self._config.data_directory, f"broker-{broker_id}", META_PROPERTIES)
            meta = read_meta_properties(disk, path)
            if meta is not None:
                raise SettingsError(
                    f"{path} belongs to cluster {meta.cluster_id}, but {self._zookeeper_directory}, with the cluster's "
                    "topics, does not exist: restore it, or start with another --data-dir"
                )

    @property
    def admin_url(self) -> str | None:
        """URL of the process's admin API; None if it is disabled."""
        admin = self._brokers[0].admin
        return admin.url if admin is not None else None

    @property
    def ports(self) -> Sequence[int]:
        """Ports of the brokers, ordered by broker ID."""
        return [broker.port for broker in self.brokers]

    def addresses(self) -> ClusterAddresses:
        """Return the addresses of the running cluster."""
        secured, shared = self._config.secured, self._config.bootstrap_port
        return ClusterAddresses(
            [f"{HOST}:{port}" for port in ([shared] if shared else self.ports)],
            self.admin_url,
            f"{HOST}:{self.zookeeper.port}",
            self._config.data_directory,
            None if secured is None else str(secured.directory),
        )

    async def stop(self) -> None:
        """Stop the brokers, then the ZooKeeper server."""
        await stop_all(self._stop_brokers, self.zookeeper.stop)
        self._runtime.offload.stop()

    async def _stop_brokers(self) -> None:
        await stop_all(*(broker.stop for broker in reversed(self._brokers)))
