"""The composition root: the only place that builds a broker from its parts.

* ``options`` what users type; ``process`` a whole process as a Twisted service
* ``broker`` one broker, ``broker_process`` by itself; ``replication`` the part of it that replicates
* ``handlers`` its table of APIs, with ``group_handlers`` and ``transaction_handlers``
* ``settings_maps`` its settings, room by room; ``watches`` what it keeps up with of the whole cluster
* ``coordinators`` of groups and transactions; ``cluster_view`` what they see of the cluster
* ``plugins`` those that its settings choose
* ``figures`` what it tells Prometheus, with ``controller_figures``, ``group_figures`` and ``machine_figures``, made
  by ``families``
* ``operating`` what its admin API wants to explain how things are, and for plans;
  ``live_figures`` for charts, ``group_facts`` of its groups
* ``readiness`` whether it can serve; ``neighbours`` what it knows of the others; ``stopping`` the end, step by step
* ``standalone`` an embedded coordinator and brokers in one process; ``coordinator`` the coordinator alone
* ``hosted_standalone`` the same with several, each of ``hosted_brokers``; ``standalone_admin`` the process's own port
* ``processes_standalone`` the same with each broker in a process of its own: a ``kept_broker``, which lives as one
  ``broker_run`` after the other
* ``service_manager`` what systemd is told; ``reactor_loading`` the reactor without what it seldom needs
* ``banner``, ``log_output`` what people and machines read; ``open_files`` the process's limit of them
* ``interrupts`` Ctrl-C during a start; ``start_timings`` how long its parts took

``twistd`` looks for ``Options`` and ``makeService`` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import IService

from kreplica.service.process.options import Options

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> IService:
    """What ``twistd kreplica ...`` runs."""
    from kreplica.service.process.interrupts import end_on_interrupt
    from kreplica.service.process.reactor_loading import load_without_tls

    end_on_interrupt()
    load_without_tls()  # before anything else imports it
    from kreplica.service.process.log_output import observer
    from kreplica.service.process.process import ProcessService, Startable

    chosen: Any = options.subOptions

    def build(reactor: Any, failed: Callable[[str], None]) -> Startable:
        # Imported late: each command loads only what it runs.
        if options.subCommand == "standalone":
            from kreplica.service.standalone.startup import standalone_from_options

            return standalone_from_options(reactor, chosen, failed)
        if options.subCommand == "broker":
            from kreplica.service.process.broker_process import broker_from_options

            return broker_from_options(reactor, chosen, failed)
        from kreplica.service.process.coordinator_process import coordinator_from_options

        return coordinator_from_options(reactor, chosen, failed)

    return ProcessService(build, observer(chosen["log-format"]))
