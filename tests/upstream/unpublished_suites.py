"""Parts of suites that their projects do not publish, and the equivalent tests of this project, for the page."""

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
            "no: tests of the client's internals, mostly without a broker"
        ),
        "`test_sasl.py`, tests marked `ssl`": "no: the tested broker has no listener with TLS or SASL",
    },
    "confluent-kafka 2.16.1, `tests/integration/`": {
        "`consumer/`": f"{CONFLUENT}_groups.py",
        "`consumer/test_consumer_upgrade_downgrade.py`": (
            "no: a group changes its protocol only while it is empty"
        ),
        "`consumer/` and `producer/`: concurrency, re-entrance, wake-ups, performance": "no: tests of the client only",
        "`producer/test_transactions.py`": f"{CONFLUENT}_transactions.py",
        "`producer/test_aio_producer.py`, `consumer/test_aio_*`": f"{CONFLUENT}_topics.py",
        "`admin/test_basic_operations.py`, `admin/test_describe_consumer_groups_compatability.py`": (
            f"{CONFLUENT}_admin.py"
        ),
        "`admin/`: list offsets, delete records, alter configs": f"{CONFLUENT}_topics.py",
        "`admin/test_incremental_alter_configs.py`: settings of groups": "no: individual groups have no settings",
        "`admin/`: SCRAM users, authorized operations, client quotas": (
            "no: these were not supported when the suite ran"
        ),
        "`schema_registry/`, `serialization/`": "no: kreplica has no schema registry",
        "`share_consumer*/`": "no: share groups are not supported",
    },
}
"""By suite and part: the files with equivalent tests, or the reason why none exist."""
