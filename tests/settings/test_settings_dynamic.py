"""Layers of settings: precedence, and sources in DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kreplica.settings import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerSettings, EffectiveSettings, Source
from kreplica.settings.dynamic import ConfigRow

HOUR = 60 * 60 * 1000
TOPIC, BROKER, ALL_BROKERS, STATIC, DEFAULT, _ = Source


def static(text: str = "") -> BrokerSettings:
    return BrokerSettings.from_text("broker.id=1\nzookeeper.connect=a:1\n" + text)


def topic_row(effective: EffectiveSettings, name: str, **overrides: str) -> ConfigRow:
    (row,) = effective.describe_topic({key.replace("_", "."): text for key, text in overrides.items()}, [name])
    return row


def setting_names(sentences: Iterable[str]) -> list[str]:
    """Return the setting's name at the start of each message."""
    return [sentence.split(":")[0] for sentence in sentences]


def broker_row(effective: EffectiveSettings, name: str) -> ConfigRow:
    (row,) = effective.describe_broker([name])
    return row


def test_topic_without_settings_has_kafkas_defaults():
    """Every setting has a typed value, which is the default of its definition."""
    topic = EffectiveSettings(static()).topic({})
    assert topic.values == {name: setting.default for name, setting in TOPIC_SETTINGS.items()}
    assert topic["retention.ms"] == 7 * 24 * HOUR


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("log.retention.hours=2", "retention.ms", 2 * HOUR),
        ("log.retention.hours=2\nlog.retention.minutes=3", "retention.ms", 180_000),
        ("log.retention.hours=2\nlog.retention.minutes=3\nlog.retention.ms=4", "retention.ms", 4),
        ("log.retention.hours=-1", "retention.ms", -1),
        ("log.retention.minutes=-1", "retention.ms", -1),
        ("log.roll.hours=1", "segment.ms", HOUR),
        ("log.roll.hours=1\nlog.roll.ms=5", "segment.ms", 5),
        ("log.roll.jitter.hours=1", "segment.jitter.ms", HOUR),
        ("log.flush.scheduler.interval.ms=7", "flush.ms", 7),
        ("log.flush.scheduler.interval.ms=7\nlog.flush.interval.ms=8", "flush.ms", 8),
        ("message.max.bytes=9", "max.message.bytes", 9),
        ("min.insync.replicas=2", "min.insync.replicas", 2),
        ("log.cleaner.min.cleanable.ratio=1", "min.cleanable.dirty.ratio", 1.0),
        ("log.cleanup.policy=compact,delete", "cleanup.policy", ("compact", "delete")),
        ("unclean.leader.election.enable=true", "unclean.leader.election.enable", True),
    ],
)
def test_topic_defaults_come_from_the_broker(text, name, value):
    """The broker setting may have another name and unit; the finer unit takes precedence."""
    assert EffectiveSettings(static(text)).topic({})[name] == value


def test_precedence_of_layers():
    """The order is topic, this broker, all brokers, file, default."""
    file = static("min.insync.replicas=2")
    all_layers = EffectiveSettings(file, {"min.insync.replicas": "4"}, {"min.insync.replicas": "3"})
    assert all_layers.topic({"min.insync.replicas": "5"})["min.insync.replicas"] == 5
    assert all_layers.topic({})["min.insync.replicas"] == all_layers["min.insync.replicas"] == 4
    without_broker_layer = EffectiveSettings(file, {}, {"min.insync.replicas": "3"})
    assert without_broker_layer.topic({})["min.insync.replicas"] == without_broker_layer["min.insync.replicas"] == 3
    assert EffectiveSettings(file)["min.insync.replicas"] == 2
    assert EffectiveSettings(static())["min.insync.replicas"] == 1


def test_dynamic_value_precedes_a_coarser_unit_of_the_file():
    """log.retention.ms set for all brokers takes precedence over log.retention.hours in one broker's file."""
    effective = EffectiveSettings(static("log.retention.hours=2"), None, {"log.retention.ms": "5"})
    assert effective.topic({})["retention.ms"] == 5


@pytest.mark.parametrize("newer", ["message.timestamp.before.max.ms", "message.timestamp.after.max.ms"])
def test_older_timestamp_limit_is_a_fallback(newer: str):
    """message.timestamp.difference.max.ms limits past and future timestamps, as in Kafka 3.9."""
    effective = EffectiveSettings(static())
    older = {"message.timestamp.difference.max.ms": "10"}
    assert effective.topic(older)[newer] == 10
    assert effective.topic(older | {newer: "20"})[newer] == 20
    assert EffectiveSettings(static("log.message.timestamp.difference.max.ms=30")).topic({})[newer] == 30


def test_invalid_values_in_zookeeper_are_ignored():
    """An invalid value that another tool has written is reported, and the next layer applies."""
    effective = EffectiveSettings(
        static("message.max.bytes=5"),
        {"message.max.bytes": "many", "num.partitions": "3", "nonsense": "1", "log.retention.ms": "7"},
    )
    assert effective["message.max.bytes"] == 5
    assert effective["num.partitions"] == 1
    assert effective["log.retention.ms"] == 7
    assert setting_names(effective.ignored) == ["message.max.bytes", "num.partitions", "nonsense"]
    topic = effective.topic({"retention.ms": "soon", "nonsense": "1", "segment.ms": "9"})
    assert (topic["retention.ms"], topic["segment.ms"]) == (7, 9)
    assert setting_names(topic.ignored) == ["retention.ms", "nonsense"]
    assert topic_row(effective, "retention.ms", retention_ms="soon").source is BROKER


# --- DescribeConfigs --------------------------------------------------------------------------------------------------


def test_every_setting_of_a_topic_is_described():
    """The description has name, value, type, source and documentation, whether or not the setting is set."""
    rows = EffectiveSettings(static()).describe_topic({})
    assert [row.name for row in rows] == list(TOPIC_SETTINGS)
    for row in rows:
        assert row.is_default
        assert not row.read_only
        assert not row.is_sensitive
        assert row.config_type == TOPIC_SETTINGS[row.name].type
        assert row.documentation
        assert row.value is not None


def test_synonyms_are_in_order_of_precedence():
    """All five layers are listed under the name of the broker setting, the effective one first."""
    effective = EffectiveSettings(static("message.max.bytes=2"), {"message.max.bytes": "4"}, {"message.max.bytes": "3"})
    row = topic_row(effective, "max.message.bytes", max_message_bytes="5")
    assert (row.value, row.source, row.is_default) == ("5", TOPIC, False)
    assert row.synonyms == (
        ("max.message.bytes", "5", TOPIC),
        ("message.max.bytes", "4", BROKER),
        ("message.max.bytes", "3", ALL_BROKERS),
        ("message.max.bytes", "2", STATIC),
        ("message.max.bytes", "1048588", DEFAULT),
    )
    row = topic_row(effective, "max.message.bytes")
    assert (row.value, row.source) == ("4", BROKER)
    assert row.synonyms[0].name == "message.max.bytes"


def test_value_in_another_unit_is_converted():
    """The value is in milliseconds; the synonym has the value of the file."""
    row = topic_row(EffectiveSettings(static("log.retention.hours=2")), "retention.ms")
    assert (row.value, row.source) == (str(2 * HOUR), STATIC)
    assert row.synonyms == (("log.retention.hours", "2", STATIC), ("log.retention.hours", "168", DEFAULT))


def test_setting_of_topics_only():
    """Throttled replicas have no broker setting as their default."""
    name = "leader.replication.throttled.replicas"
    row = topic_row(EffectiveSettings(static()), name)
    assert (row.value, row.source, row.synonyms) == ("", DEFAULT, ())
    (row,) = EffectiveSettings(static()).describe_topic({name: "0:1"}, [name])
    assert (row.value, row.source, row.synonyms) == ("0:1", TOPIC, ((name, "0:1", TOPIC),))


def test_unknown_setting_is_described_as_sensitive():
    """An override written by another tool is listed without its value, which is kept."""
    rows = EffectiveSettings(static()).describe_topic({"their.token": "x"})
    assert rows[-1].name == "their.token"
    assert (rows[-1].value, rows[-1].is_sensitive, rows[-1].config_type) == (None, True, 0)
    assert rows[-1].synonyms == (("their.token", None, TOPIC),)


def test_broker_settings_are_described():
    """All public settings of Kafka and kreplica are described as dynamic or read-only."""
    effective = EffectiveSettings(static("num.partitions=3"), {"log.segment.bytes": "17"})
    rows = {row.name: row for row in effective.describe_broker()}
    assert set(rows) == {name for name, setting in BROKER_SETTINGS.items() if setting.listed}
    partitions = rows["num.partitions"]
    assert (partitions.value, partitions.source, partitions.read_only) == ("3", STATIC, True)
    assert not partitions.is_default
    assert partitions.synonyms == (("num.partitions", "3", STATIC), ("num.partitions", "1", DEFAULT))
    segment = rows["log.segment.bytes"]
    assert (segment.value, segment.source, segment.read_only) == ("17", BROKER, False)
    assert (rows["log.dirs"].value, rows["log.dirs"].synonyms) == (None, ())
    assert rows["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"


def test_internal_settings_are_described_once_set():
    """Kafka's internal settings are described only if they are set."""
    name = "producer.id.expiration.check.interval.ms"
    assert EffectiveSettings(static()).describe_broker([name]) == []
    assert broker_row(EffectiveSettings(static(f"{name}=5")), name).value == "5"
    rate = "leader.replication.throttled.rate"
    assert broker_row(EffectiveSettings(static(), {rate: "5"}), rate).source is BROKER


def test_coarser_unit_is_described_separately():
    """log.retention.hours is a synonym of log.retention.ms, but not the reverse."""
    effective = EffectiveSettings(static("log.retention.hours=2\nlog.retention.ms=3"))
    assert broker_row(effective, "log.retention.ms").synonyms[0] == ("log.retention.ms", "3", STATIC)
    assert broker_row(effective, "log.retention.ms").synonyms[1] == ("log.retention.hours", "2", STATIC)
    assert broker_row(effective, "log.retention.hours").value == "2"


def test_secrets_are_not_described():
    """Neither the value nor its synonyms are shown."""
    row = broker_row(EffectiveSettings(static("ssl.key.password=hunter2")), "ssl.key.password")
    assert (row.value, row.is_sensitive, row.source) == (None, True, STATIC)
    assert row.synonyms == (("ssl.key.password", None, STATIC),)


def test_unsupported_protection_is_reported() -> None:
    """Effective unsupported settings are reported; settings that no client can set are not."""
    shared = {"sasl.kerberos.kinit.cmd": "kinit", "sasl.kerberos.service.name": "kafka", "authorizer.class.name": "x"}
    own = {"sasl.kerberos.service.name": "", "sasl.kerberos.ticket.renew.jitter": "0.5"}
    unsupported = EffectiveSettings(static(), own, shared).unsupported
    assert [sentence.partition(" ")[0] for sentence in unsupported] == [
        "sasl.kerberos.kinit.cmd=kinit",
        "sasl.kerberos.ticket.renew.jitter=0.5",
    ]
    assert EffectiveSettings(static(), {"message.max.bytes": "5"}).unsupported == ()


def test_unsupported_settings_are_documented_as_such():
    """Tools that show the documentation also show that a setting has no effect."""
    row = broker_row(EffectiveSettings(static()), "num.io.threads")
    assert row.documentation.startswith("No effect: one reactor")


def test_cluster_default_has_only_its_own_settings():
    """If no broker is named, only the settings for all brokers are described, as in Kafka."""
    own = {"log.segment.bytes": "17"}
    effective = EffectiveSettings(static("log.segment.bytes=15"), own, {"log.segment.bytes": "16"})
    (row,) = effective.describe_default_broker()
    assert (row.name, row.value, row.source) == ("log.segment.bytes", "16", ALL_BROKERS)
    assert row.synonyms == (("log.segment.bytes", "16", ALL_BROKERS),)
    assert effective.describe_default_broker(["other"]) == []
