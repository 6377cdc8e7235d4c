"""Measurements with Kafka's own performance programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from confluent_kafka import Producer

from benchmarks.comparison import java_programs
from benchmarks.comparison.deployments import Deployment
from benchmarks.comparison.scenarios import Scale, Scenario
from benchmarks.driver import write_ahead

MB = 1_000_000
LINGER_MS = 5
ROUND_TRIPS_PER_S = 1000
"""Number of records that ``EndToEndLatency`` sends per second of a latency scenario; one is in flight at a time."""


class JavaPrograms:
    """Runs Kafka's programs against one deployment.

    :param topic: context manager of a topic for a scenario, which is deleted at the end of the block.
    """

    def __init__(
        self, deployment: Deployment, scale: Scale, topic: Callable[[Scenario], AbstractContextManager[str]]
    ) -> None:
        self._deployment = deployment
        self._scale = scale
        self._topic = topic

    def produce(self, scenario: Scenario) -> dict[str, float]:
        """``ProducerPerformance``."""
        with self._topic(scenario) as topic:
            return self._counted(scenario, lambda: self._produce(scenario, topic))

    def consume(self, scenario: Scenario) -> dict[str, float]:
        """Run ``ConsumerPerformance`` on records that ``ProducerPerformance`` has written."""
        with self._topic(scenario) as topic:
            self._produce(scenario, topic)
            records = self._records(scenario)
            return self._counted(scenario, lambda: java_programs.consume(self._deployment.bootstrap, topic, records))

    def end_to_end(self, scenario: Scenario) -> dict[str, float]:
        """``EndToEndLatency``."""
        records = ROUND_TRIPS_PER_S * self._scale.latency_s
        with self._topic(scenario) as topic:
            report, cpu_s, switches = self._measured(
                lambda: java_programs.end_to_end(
                    self._deployment.bootstrap,
                    topic,
                    records=records,
                    record_bytes=scenario.record_bytes,
                    acks=scenario.acks,
                )
            )
        return {
            **report.figures,
            "broker us/record": cpu_s * 1e6 / records,
            "broker switches/record": switches / records,
        }

    def _produce(self, scenario: Scenario, topic: str) -> java_programs.Report:
        self._touch(scenario, topic)
        return java_programs.produce(
            self._deployment.bootstrap,
            topic,
            records=self._records(scenario),
            record_bytes=scenario.record_bytes,
            acks=scenario.acks,
            batch_bytes=scenario.batch_bytes,
            linger_ms=LINGER_MS,
        )

    def _counted(self, scenario: Scenario, run: Callable[[], java_programs.Report]) -> dict[str, float]:
        report, cpu_s, switches = self._measured(run)
        size_mb = self._records(scenario) * scenario.record_bytes / MB
        costs: Mapping[str, float] = {
            "broker us/MB": cpu_s * 1e6 / size_mb,
            "client us/MB": report.client_cpu_s * 1e6 / size_mb,
            "broker switches/MB": switches / size_mb,
        }
        return {**report.figures, **costs}

    def _measured(self, run: Callable[[], java_programs.Report]) -> tuple[java_programs.Report, float, int]:
        """Return the report, and the brokers' CPU time and context switches, including the client's start."""
        cpu_s, switches = self._deployment.cpu_s(), self._deployment.context_switches()
        report = run()
        return report, self._deployment.cpu_s() - cpu_s, self._deployment.context_switches() - switches

    def _records(self, scenario: Scenario) -> int:
        return int(self._scale.megabytes * MB * scenario.share / scenario.record_bytes)

    def _touch(self, scenario: Scenario, topic: str) -> None:
        """Fill the page cache of the logs, which exist once the partition has a record."""
        producer = Producer({"bootstrap.servers": self._deployment.bootstrap, "acks": "all"})
        producer.produce(topic, b"first")
        if producer.flush(60):
            raise RuntimeError(f"{topic}: the first record was not acknowledged")
        size = self._records(scenario) * scenario.record_bytes
        for log in self._deployment.logs(topic, 0):
            write_ahead(log, size + size // 8, sync=False)
