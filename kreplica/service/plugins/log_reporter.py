"""A metrics reporter that writes configured metrics to the log."""

from __future__ import annotations

from collections.abc import AsyncIterator

from twisted.logger import Logger
from zope.interface import implementer

from kreplica.interfaces import Family, Histogram, IMetricsReporter, PluginContext
from kreplica.service.plugins.patterns import Patterns

log = Logger()

SAMPLES_MAX = 20
"""Maximum number of samples per line."""


@implementer(IMetricsReporter)
class LogReporter:
    """Logs one line per configured metric."""

    def __init__(self, context: PluginContext) -> None:
        """Create the reporter.

        :raise ValueError: no metric name is configured.
        """
        self._names = Patterns(context.settings.get("names", ""))
        if not self._names:
            raise ValueError("names: list at least one metric, such as kafka_server_*")

    async def report(self, families: AsyncIterator[Family | Histogram]) -> None:
        async for family in families:
            if isinstance(family, Family) and family.name in self._names:
                shown = [f"{','.join(labels)}={value:g}".lstrip("=") for labels, value in family.samples[:SAMPLES_MAX]]
                more = len(family.samples) - len(shown)
                text = " ".join([*shown, f"and {more} more"] if more else shown)
                log.info("{name}: {text}", name=family.name, text=text)
