"""Runs one broker as a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twisted.logger import Logger

from kreplica.runtime import real_runtime
from kreplica.runtime.lean_polling import install_lean_polling
from kreplica.runtime.parent_process import exit_with_parent
from kreplica.service.composition.broker import Broker
from kreplica.service.process.data_directories import check_owners
from kreplica.service.process.private_files import warn_of_readable_secrets
from kreplica.service.process.settings_overrides import overrides_of
from kreplica.settings.broker_settings import BrokerSettings, load
from kreplica.settings.overrides import Override

log = Logger()


class BrokerProcess(Broker):
    """A broker that owns its process: stopping it also stops the process's threads."""

    async def start(self) -> None:
        await super().start()
        log.info("broker {broker} is ready", broker=self.broker_id)

    async def stop(self) -> None:
        await super().stop()
        self.runtime.offload.stop()


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """The addresses of a running broker, which a child process sends to its parent as a line of JSON.

    :param port: the port of the first listener.
    :param admin_url: None if the admin API is disabled.
    """

    port: int
    admin_url: str | None

    def to_line(self) -> str:
        return json.dumps({"serving": asdict(self)})

    @staticmethod
    def from_line(line: str) -> BrokerAddresses | None:
        """Parse a line; return None if it is another message."""
        try:
            return BrokerAddresses(**json.loads(line)["serving"])
        except (ValueError, LookupError, TypeError):
            return None


class ChildBrokerProcess(BrokerProcess):
    """A broker process that reports its addresses to the parent process when it is ready."""

    async def start(self) -> None:
        await super().start()
        admin_url = self.admin.url if self.admin is not None else None
        print(BrokerAddresses(self.port, admin_url).to_line(), file=sys.__stdout__, flush=True)


def broker_from_options(reactor: Any, options: dict[str, Any], failed: Callable[[str], None]) -> BrokerProcess:
    """Return the broker process that the command-line options describe.

    :raise SettingsError: a setting is invalid, or another user controls a log directory.
    """
    parent_id = options["child-of"]
    if parent_id is not None:
        exit_with_parent(parent_id)
    kind = BrokerProcess if parent_id is None else ChildBrokerProcess
    settings = _settings(options["config"], overrides_of(options))
    install_lean_polling(reactor, settings["kreplica.busy.poll.max.us"] / 1e6)
    warn_of_readable_secrets(options["config"], settings)
    if not {"log.dir", "log.dirs"} & set(settings.configured_names):
        log.warn(
            "log.dirs is not set: the data is in {directories}, where other users may delete or create files",
            directories=", ".join(settings.log_dirs),
        )
    check_owners(settings.log_dirs)
    return kind(real_runtime(reactor), settings, failed)


def _settings(config: str | None, overrides: Sequence[Override]) -> BrokerSettings:
    if config is None:
        return BrokerSettings.from_text("", overrides, origin="the environment")
    return load(config, overrides)
