"""What the suites hold that their projects do not publish, and where the same is asked here: for the page."""

from __future__ import annotations

GROUPS = "tests/upstream/test_scenarios_aiokafka_groups.py"
INTEROP = "tests/interop/test_interop_aiokafka.py"
CONFLUENT = "tests/upstream/test_scenarios_confluent"

UNPUBLISHED = {
    "aiokafka 0.14.0, `tests/`": {
        "`test_consumer.py`, `test_coordinator.py`, `test_pep492.py`": GROUPS,
        "`test_transactional_consumer.py`, `test_transactional_producer.py`": (
            "tests/upstream/test_scenarios_aiokafka_transactions.py"
        ),
        "`test_producer.py`": INTEROP,
        "`test_admin.py`": f"{INTEROP}, {GROUPS}",
        "`test_client.py`, `test_conn.py`, `test_fetcher.py`, `test_sender.py`": (
            "no: they look into the client, most with no broker"
        ),
        "`test_sasl.py`, and what is marked `ssl`": "no: SASL and TLS are not served",
    },
    "confluent-kafka 2.16.1, `tests/integration/`": {
        "`consumer/`": f"{CONFLUENT}_groups.py",
        "`consumer/test_consumer_upgrade_downgrade.py`": (
            "no: a group has members of one protocol, and takes the other while it is empty"
        ),
        "`consumer/` and `producer/`: concurrency, re-entrance, wake-ups, performance": "no: they are about the client",
        "`producer/test_transactions.py`": f"{CONFLUENT}_transactions.py",
        "`producer/test_aio_producer.py`, `consumer/test_aio_*`": f"{CONFLUENT}_topics.py",
        "`admin/test_basic_operations.py`, `admin/test_describe_consumer_groups_compatability.py`": (
            f"{CONFLUENT}_admin.py"
        ),
        "`admin/`: list offsets, delete records, alter configs": f"{CONFLUENT}_topics.py",
        "`admin/test_incremental_alter_configs.py`, its settings of groups": "no: single groups have no settings",
        "`admin/`: SCRAM users, authorized operations, client quotas": (
            "no: SASL, access control lists and client quotas are not served"
        ),
        "`schema_registry/`, `serialization/`": "no: a schema registry is no part of a broker",
        "`share_consumer*/`": "no: share groups are not served",
    },
}
"""By suite, part of it -> the files here that ask the same, or why none does."""
