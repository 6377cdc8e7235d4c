"""The suites of two versions of kafka-python."""

from __future__ import annotations

from suites import Suite

SERVICE = '''"""Gives the suite brokers that it did not start."""

from kafka import KafkaConsumer

# A consumer that subscribes while its first metadata is on its way asks for its topics when that is so old: 5 minutes.
KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 1000


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """Do nothing: the broker runs already."""

    def stop(self):
        """Do nothing: the broker keeps running."""

    def dump_logs(self):
        """Do nothing: the logs are elsewhere."""


class SpawnedService:
    def __init__(self, *arguments, **options):
        raise RuntimeError("the brokers run already")
'''

MISSING = {"test/__init__.py": "", "test/service.py": SERVICE}

ADMIN = "test/integration/test_admin_integration.py::"
SASL = "test/integration/test_sasl_integration.py::"
CONSUMER = "test/integration/test_consumer_integration.py::"
NO_KRAFT = "KRaft only; the suite skips it for versions below 4"

NO_OLD_BROKER = "for brokers before 0.10.1; skipped by the suite"
NO_ACLS = "the tested broker has no authorizer"
NO_SASL = "the tested broker has no listener with SASL; the suite skips it for external brokers"

NOT_PASSED = {
    f"{ADMIN}test_create_describe_delete_acls": NO_ACLS,
    f"{ADMIN}test_describe_configs_broker_resource_returns_configs": (
        "expects listeners to be dynamic settings"
    ),
    f"{ADMIN}test_describe_metadata_quorum": NO_KRAFT,
    f"{ADMIN}test_describe_topic_partitions": NO_KRAFT,
    f"{ADMIN}test_list_config_resources": NO_KRAFT,
    f"{CONSUMER}test_kafka_consumer_offsets_for_time_old": NO_OLD_BROKER,
    SASL: NO_SASL,
    "test/integration/test_ssl_integration.py::": "TLS tests need brokers started by the suite",
}

KAFKA_PYTHON = Suite(
    project="kafka-python",
    version="3.0.12",
    sha256="4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65",
    folders=("test",),
    run="test/integration",
    missing=MISSING,
    test_count=67,
    passed_count=49,
    not_passed=NOT_PASSED,
)

OLDER_KAFKA_PYTHON = Suite(
    project="kafka-python",
    version="2.2.15",
    sha256="e0f480a45f3814cb0eb705b8b4f61069e1be61dae0d8c69d0f1f2da33eea1bd5",
    folders=("test", "kafka"),
    run="test/integration",
    missing=MISSING,
    test_count=49,
    passed_count=37,
    not_passed={
        f"{ADMIN}test_create_describe_delete_acls": NO_ACLS,
        f"{CONSUMER}test_kafka_version_infer": "the client has no Kafka versions after 2.6; skipped by the suite",
        f"{CONSUMER}test_kafka_consumer_offsets_for_time_old": NO_OLD_BROKER,
        SASL: "the tested broker has no listener with SASL",
    },
)
"""The last version before the client was rewritten; it uses older versions of the protocol."""
