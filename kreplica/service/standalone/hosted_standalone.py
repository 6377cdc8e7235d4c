"""An embedded ZooKeeper server and several brokers in one process; each broker can be killed, paused or isolated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kreplica.admin.http.site import AdminSite
from kreplica.admin.security.guard import Guard
from kreplica.runtime import Runtime
from kreplica.service.admin.access import admin_access, admin_token
from kreplica.service.admin.tls import admin_tls
from kreplica.service.composition.broker import Broker
from kreplica.service.composition.stopping import stop_all
from kreplica.service.standalone.hosted_brokers import HostedBrokers
from kreplica.service.standalone.standalone import HOST, Standalone, StandaloneConfig
from kreplica.service.standalone.standalone_admin import ProcessRoot

COORDINATOR = "coordinator"
ANY_PORT = 0


class HostedStandalone(Standalone):
    """Standalone cluster with an admin port for the whole process, in addition to each broker's own.

    :raise SettingsError: the token, certificate or key of the admin port cannot be read.
    """

    def __init__(
        self, runtime: Runtime, config: StandaloneConfig, *, on_failure: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(runtime, config, on_failure=on_failure)
        self.hosted = HostedBrokers(runtime, config.broker_ids, self._build_broker)
        settings = config.broker_settings(config.first_broker_id, config.zookeeper_port, config.admin_port)
        guard = Guard(token=admin_token(runtime.disk, settings))
        root = ProcessRoot(runtime, self.hosted, admin_access(settings, HOST), guard)
        tls = admin_tls(runtime, settings)
        self._admin = AdminSite(runtime.reactor, root, host=HOST, port=config.admin_port, tls=tls)

    @property
    def brokers(self) -> Sequence[Broker]:
        return [machine.program for machine in self.hosted.machines.values() if machine.running]

    @property
    def admin_url(self) -> str | None:
        return self._admin.url

    def _build_broker(self, number: int, runtime: Runtime) -> Broker:
        broker = self._broker(number, runtime, ANY_PORT)
        broker.standalone = self.hosted
        return broker

    async def _start_brokers(self) -> None:
        self.hosted.loopback.add_listener(self.zookeeper.port, COORDINATOR)
        self._admin.start()
        await self.hosted.start()

    async def _stop_brokers(self) -> None:
        await stop_all(self._admin.stop, self.hosted.stop)
