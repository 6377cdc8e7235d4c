"""A broker as a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from kreplica.runtime import real_runtime
from kreplica.service.broker import Broker
from kreplica.settings.broker_settings import load

log = Logger()


class BrokerProcess(Broker):
    """A broker that has the process for itself."""

    async def start(self) -> None:
        await super().start()
        log.info("broker {broker} is ready", broker=self.broker_id)

    async def stop(self) -> None:
        await super().stop()
        self.runtime.offload.stop()


def broker_from_options(reactor: Any, options: dict[str, Any], failed: Callable[[str], None]) -> BrokerProcess:
    """:raise SettingsError: whatever is wrong with the file, with its line."""
    return BrokerProcess(real_runtime(reactor), load(options["config"], options["overrides"]), failed)
