"""The suites of franz-go, sarama and kafka-go."""

from __future__ import annotations

from go_suites import GoSuite, Module

NO_SHARE_GROUPS = "share groups are not supported; skipped by the suite"
NO_ACLS = "the tested broker has no authorizer"
NO_QUOTAS = "client quotas were not supported when the suite ran"
NO_KAFKA_3 = "skipped by the suite for Kafka 3.0 and later"
NO_SASL = "the tested broker has no listener with SASL"
DOCKER = "starts and stops its own containers"
OLD_CLIENT = "uses a client of version 0.8.2, which needs Fetch 0 to 3"
NO_SCRAM = "the tested broker has no listener with SASL; the suite skips it without a SCRAM listener"

SKIPPED = "-skip=^TestVersionMatrix"
"""Clients before 2.1, which produce message formats 0 and 1; if one of their tests fails, the suite hangs."""

FRANZ_GO = GoSuite(
    "franz-go",
    "1.22.2",
    test_count=152,
    passed_count=144,
    not_passed={
        "TestShareGroup*": NO_SHARE_GROUPS,
        "TestConsumeRegexShareSkipsInternal": NO_SHARE_GROUPS,
        "TestSCRAMAuth*": NO_SCRAM,
        "TestIssueProduceBrokerTooOldFailsRecords": "needs an older broker; skipped by the suite",
    },
    module=Module("github.com/twmb/franz-go", "v1.22.2", "h1:EdwIHGzD/4mgCpl/sNS0C74JYn6cL/r2KYS+8UC96Ww="),
    packages=("./pkg/kgo",),
    environment={"KGO_TEST_RF": "3", "KGO_TEST_RECORDS": "10000"},
)

FRANZ_GO_ADMIN = GoSuite(
    "franz-go kadm",
    "1.19.0",
    test_count=11,
    passed_count=11,
    not_passed={},
    module=Module("github.com/twmb/franz-go/pkg/kadm", "v1.19.0", "h1:5Nx/WWFkpNUi8Z55Skxvn9x5HOCjw+BUntSNB1kLglk="),
)

SARAMA = GoSuite(
    "sarama",
    "1.61.1",
    test_count=57,
    passed_count=45,
    not_passed={
        "TestFuncProducing*": OLD_CLIENT,
        "TestFuncAdminListConsumerGroupOffsets": DOCKER,
        "TestFuncTxnProduceWithBrokerFailure": DOCKER,
        "TestFuncIdempotentBufferedSequence": DOCKER,
        "TestFuncJavaInteropCooperativeRebalance": DOCKER,
        "TestFuncAdminQuotas": NO_QUOTAS,
        "TestFuncAdminUpdateFeatures": "needs Kafka 4.0; skipped by the suite",
        "TestFuncAdminIncrementalAlterConfigs": "changes a broker setting that kreplica reads at startup",
    },
    module=Module("github.com/IBM/sarama", "v1.61.1", "h1:I59MWPHQUWqJNdRpsDUcbeCriog8SxjQaPfHNWxidEg="),
    packages=(".",),
    flags=("-tags=functional", "-run=^TestFunc|^TestVersionMatrix|^TestReliable|^TestInteropMatrix", SKIPPED),
    environment={"KAFKA_VERSION": "3.9.1"},
)

KAFKA_GO = GoSuite(
    "kafka-go",
    "0.4.51",
    test_count=159,
    passed_count=145,
    not_passed={
        "TestClient*ACLs": NO_ACLS,
        "TestClientAlterClientQuotas": NO_QUOTAS,
        "Test*UserScramCredentials": NO_SASL,
        "TestUnsupportedSASLMechanism": NO_SASL,
        "TestClientAddOffsetsToTxn": NO_KAFKA_3,
        "TestClientAddPartitionsToTxn": NO_KAFKA_3,
        "TestClientInitProducerId": NO_KAFKA_3,
        "TestClientTxnOffsetCommit": NO_KAFKA_3,
        "TestConsumerGroupWithMissingTopic": "needs a broker without automatic topic creation; skipped by the suite",
        "TestWriter": "one of its subtests needs a listener with SASL",
        "TestReadTruncatedMessages": "always skipped by the suite",
    },
    module=Module("github.com/segmentio/kafka-go", "v0.4.51", "h1:JgDPPG75tC1rWIS2Me6MwcvXJ6f49UQ4HjAOef71Hno="),
    packages=(".",),
    # Two of its subtests call a function that they did not set, which ends the whole run.
    flags=("-skip=^TestReaderConsumerGroup$",),
    environment={"KAFKA_VERSION": "3.7.0", "KAFKA_SKIP_NETTEST": "1"},
)

TOXIPROXY = Module("github.com/Shopify/toxiproxy/v2", "v2.5.0", "h1:i4LPT+qrSlKNtQf5QliVjdP08GyAH8+BUIc9gT0eahc=")
"""Proxy for sarama's tests, which cuts connections."""
