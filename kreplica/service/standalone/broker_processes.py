"""A standalone cluster with each broker in its own process, so that each can use one core."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence

from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.service.composition.stopping import stop_all
from kreplica.service.process.broker_process import BrokerAddresses
from kreplica.service.process.log_output import relay
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig
from kreplica.service.standalone.supervised_broker import SupervisedBroker
from kreplica.settings.overrides import Override, parse_override

_PROGRAM = "import os; os.setpgid(0, 0); from twisted.scripts.twistd import run; run()"
"""Program of the child processes. Each has its own process group, so that Ctrl-C reaches only the parent, which stops
the children gracefully.
"""

_FILE_HEADER = "# Every start of `standalone --processes` overwrites this file: changes are lost.\n"


def _override_options(overrides: Iterable[str | Override]) -> Sequence[str]:
    """Return the options that give a child process the same overrides.

    A child reads environment variables itself, because every user of the machine can see its command line.
    """
    parsed = [parse_override(each) if isinstance(each, str) else each for each in overrides]
    words = ["--environment"] if any(each.variable for each in parsed) else []
    return words + [
        word for each in parsed if each.variable is None for word in ("--override", f"{each.name}={each.value}")
    ]


class ProcessesStandalone(Standalone):
    """A standalone whose parent process runs the embedded ZooKeeper server and whose child processes run the brokers.

    The data layout is the same as in one process, so a cluster can be started either way.

    :param log_format: log format of the child processes.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: StandaloneConfig,
        log_format: str,
        *,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(runtime, config, on_failure=on_failure)
        self._log_format = log_format
        self._children: list[SupervisedBroker] = []
        self._serving: list[BrokerAddresses] = []

    @property
    def ports(self) -> Sequence[int]:
        return [serving.port for serving in self._serving]

    @property
    def admin_url(self) -> str | None:
        return self._serving[0].admin_url

    async def _start_brokers(self) -> None:
        self._children = [self._child(broker_id) for broker_id in self._config.broker_ids]
        # The first broker starts alone and becomes the controller, which the others then find.
        first, *others = self._children
        self._serving = [await first.start()]
        self._serving += await gather(child.start() for child in others)

    def _child(self, broker_id: int) -> SupervisedBroker:
        text = self._config.settings_text(broker_id, self.zookeeper.port, self._admin_port(broker_id))
        name = f"broker-{broker_id}"
        path = os.path.join(self._config.data_directory, f"{name}.properties")
        self._runtime.disk.write_file(path, (_FILE_HEADER + text).encode(), sync=False)
        options = ["--config", path, "--log-format", self._log_format, "--child-of", str(os.getpid())]
        options += _override_options(self._config.overrides)
        command = [sys.executable, "-c", _PROGRAM, "-n", "--pidfile=", "kreplica", "broker", *options]
        return SupervisedBroker(self._runtime.reactor, broker_id, command, relay(self._log_format, name))

    async def _stop_brokers(self) -> None:
        # Resume all brokers before one stops: its controlled shutdown needs the controller and the other replicas.
        for child in self._children:
            child.resume()
        await stop_all(*(child.stop for child in reversed(self._children)))
