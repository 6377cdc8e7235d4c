"""The service package: builds a broker or a standalone cluster from its parts and runs it under ``twistd``.

* ``process``: command-line options, the process as a Twisted service, log output
* ``standalone``: an embedded ZooKeeper server and several brokers
* ``composition``: builds one ``Broker``, starts it and stops it
* ``broker``: the parts of a broker: its API table, coordinators, replication, readiness
* ``admin``: wires the REST admin API; ``metrics``: the metric families; ``plugins``: plugins selected by the settings

``twistd`` looks for ``Options`` and ``makeService`` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import IService

from kreplica.service.process.options import Options

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> IService:
    """Return the service that ``twistd kreplica ...`` runs."""
    from kreplica.service.process.interrupts import end_on_interrupt
    from kreplica.service.process.reactor_loading import load_without_tls

    end_on_interrupt()
    load_without_tls()  # before another module imports it
    from kreplica.service.process.log_output import observer
    from kreplica.service.process.process import ProcessService, Startable

    chosen: Any = options.subOptions

    def build(reactor: Any, failed: Callable[[str], None]) -> Startable:
        # Imported late, so that each command loads only the modules that it runs.
        if options.subCommand == "standalone":
            from kreplica.service.standalone.startup import standalone_from_options

            return standalone_from_options(reactor, chosen, failed)
        if options.subCommand == "broker":
            from kreplica.service.process.broker_process import broker_from_options

            return broker_from_options(reactor, chosen, failed)
        from kreplica.service.process.zookeeper_process import zookeeper_from_options

        return zookeeper_from_options(reactor, chosen, failed)

    return ProcessService(build, observer(chosen["log-format"]))
