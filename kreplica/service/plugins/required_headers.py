"""Rejects batches that contain records without a required header, such as a trace ID, tenant or schema version."""

from __future__ import annotations

from zope.interface import implementer

from kreplica.interfaces import IProduceInterceptor, PluginContext, ProducedBatch, RejectBatch
from kreplica.service.plugins.patterns import Patterns


@implementer(IProduceInterceptor)
class RequiredHeaders:
    """Rejects a batch if one of its records lacks a required header."""

    def __init__(self, context: PluginContext) -> None:
        """Create the interceptor.

        :raise ValueError: no header is configured.
        """
        self._headers = [name.strip() for name in context.settings.get("headers", "").split(",") if name.strip()]
        if not self._headers:
            raise ValueError("headers: name at least one header")
        self._topics = Patterns(context.settings.get("topics", "*"))

    def intercept(self, batch: ProducedBatch) -> RejectBatch | None:
        if batch.topic_partition.topic not in self._topics:
            return None
        reasons = {}
        for record in batch.records:
            present = {name for name, _ in record.headers}
            missing = [name for name in self._headers if name not in present]
            if missing:
                reasons[record.offset] = f"the header {missing[0]} is missing"
        return RejectBatch(f"{len(reasons)} records lack a header", reasons) if reasons else None

    def appended(self, batch: ProducedBatch, note_offset: int) -> None:
        """Do nothing, because this interceptor adds no notes."""
