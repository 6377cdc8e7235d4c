"""Settings file and overrides of a broker: typed values, structured listeners, and errors with positions."""

from __future__ import annotations

import pytest

from kreplica.errors import SettingsError
from kreplica.model import Endpoint
from kreplica.settings import BrokerSettings, Source, load

MINIMUM = "broker.id=1\nzookeeper.connect=127.0.0.1:2181\n"


def settings(text: str = "", *overrides: str) -> BrokerSettings:
    return BrokerSettings.from_text(MINIMUM + text, overrides, origin="broker.properties")


def error_of(text: str, *overrides: str) -> str:
    with pytest.raises(SettingsError) as caught:
        settings(text, *overrides)
    return str(caught.value)


def test_typed_values_and_sources():
    """A value in the file is parsed by its type; other settings have Kafka's defaults."""
    parsed = settings("num.partitions = 8\nlog.cleanup.policy=compact, delete\nlog.preallocate=TRUE\n")
    assert parsed["num.partitions"] == 8
    assert parsed["log.cleanup.policy"] == ("compact", "delete")
    assert parsed["log.preallocate"] is True
    assert parsed["message.max.bytes"] == 1048588
    assert parsed["log.retention.ms"] is None
    assert parsed.source("num.partitions") is Source.STATIC_BROKER_CONFIG
    assert parsed.source("message.max.bytes") is Source.DEFAULT_CONFIG
    assert parsed.text("num.partitions") == "8"
    assert parsed.text("message.max.bytes") == "1048588"
    assert parsed.text("log.retention.ms") is None
    with pytest.raises(KeyError):
        parsed["no.such.setting"]


def test_last_override_wins():
    """Command-line overrides take precedence over the file."""
    parsed = settings("num.partitions=8\n", "num.partitions=2", "num.partitions= 3 ", "log.dirs=/a=b")
    assert parsed["num.partitions"] == 3
    assert parsed.log_dirs == ("/a=b",)


def test_override_without_a_value_is_refused():
    assert error_of("", "num.partitions") == "--override num.partitions: expected name=value"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num.partition=1", "line 3: unknown setting 'num.partition'. Did you mean num.partitions?"),
        ("\n\nlogdirs=/x", "line 5: unknown setting 'logdirs'. Did you mean log.dirs or log.dir"),
        ("retention.ms=1", "It is a topic setting; the broker setting is log.retention.ms."),
        ("zzzzzz=1", "line 3: unknown setting 'zzzzzz'."),
        ("kreplica.admin.listner=x", "Did you mean kreplica.admin.listener"),
        ("num.partitions=many", "line 3: num.partitions: 'many' is not allowed; expected a whole number, at least 1"),
        ("num.partitions=0", "line 3: num.partitions: '0' is not allowed; expected a whole number, at least 1"),
        ("compression.type=rar", "'rar' is not allowed; expected one of uncompressed, zstd, lz4, snappy, gzip"),
        ("log.preallocate=yes", "'yes' is not allowed; expected true or false"),
        ("a=\\u1", "broker.properties, line 3: malformed"),
        ("log.dirs= , ", "line 3: there must be at least one directory"),
        ("log.dirs=/a,/b,/a", "line 3: the directory /a is listed twice"),
    ],
)
def test_errors_have_their_line(text, message):
    """An error for an unknown name suggests similar names; an error for a value lists the allowed values."""
    assert message in error_of(text)


def test_errors_of_overrides_have_no_line():
    assert error_of("", "num.partitions=x").startswith("--override num.partitions: num.partitions: 'x' is not allowed")


def test_unsupported_settings_are_warnings():
    """A broker starts with a file written for Apache Kafka and logs the unsupported settings."""
    parsed = settings("num.io.threads=16\nlistener.name.internal.sasl.kerberos.service.name=\nnum.partitions=1\n")
    assert len(parsed.warnings) == 2
    assert parsed.warnings[0].startswith("num.io.threads is a setting of Apache Kafka that kreplica ignores: one")
    assert "listener.name.internal.sasl.kerberos.service.name" in parsed.warnings[1]


UNSUPPORTED_PROTECTION = {
    "ssl.engine.factory.class": "org.example.Engine",
    "security.providers": "org.example.Provider",
    "sasl.kerberos.service.name": "kafka",
    "sasl.login.class": "org.example.Login",
    "listener.name.internal.sasl.login.class": "org.example.Login",
    "listener.name.a.plain.sasl.client.callback.handler.class": "org.example.Handler",
    "zookeeper.ssl.crl.enable": "true",
    "zookeeper.ssl.ocsp.enable": "true",
    "client.quota.callback.class": "org.example.Quotas",
    "create.topic.policy.class.name": "org.example.Policy",
    "alter.config.policy.class.name": "org.example.Policy",
}
"""Unsupported settings that protect an Apache Kafka broker."""


@pytest.mark.parametrize("name", UNSUPPORTED_PROTECTION)
def test_unsupported_protection_stops_the_start(name: str) -> None:
    """The broker does not start unprotected by mistake; the error contains the position and the remedy."""
    value = UNSUPPORTED_PROTECTION[name]
    message = error_of(f"num.partitions=1\n{name}={value}\n")
    shown = "(hidden)" if value == "a secret" else value
    assert "broker.properties, line 4: " in message
    assert f"{name}={shown} requests protection that this release does not support" in message
    assert "Remove the setting" in message
    assert "wait for the release that supports it" in message
    assert "a secret" not in message
    assert f"--override {name}: " in error_of("", f"{name}={value}")


def test_protection_settings_with_defaults_are_accepted() -> None:
    """Protection settings with Kafka's defaults are accepted, because many files contain them."""
    parsed = settings(
        "authorizer.class.name=\nssl.client.auth=none\nsecurity.inter.broker.protocol=PLAINTEXT\n"
        "zookeeper.set.acl=false\nsasl.mechanism.inter.broker.protocol=GSSAPI\nssl.protocol=TLSv1.3\n"
        "listener.name.internal.ssl.client.auth=none\n"
    )
    assert parsed["ssl.client.auth"] == "none"


def test_listener_prefixes():
    """Kafka prefixes settings with the listener and, for SASL, the mechanism; many apply to all listeners."""
    parsed = settings("listener.name.a.plain.sasl.login.class=\nlistener.name.a.connections.max.idle.ms=5\n")
    assert "sasl.login.class" in parsed.warnings[0]
    assert parsed.warnings[1].endswith("connections.max.idle.ms applies to all")
    parsed = settings("listener.name.a.max.connections=5\n")
    assert not parsed.warnings
    assert parsed.of_listener("A", ["max.connections"]) == {"max.connections": 5}
    assert parsed.of_listener("B", ["max.connections"]) == {"max.connections": 2**31 - 1}
    assert "at least 1" in error_of("listener.name.a.max.connections=0")
    assert "unknown setting 'listener.name.a.nonsense'" in error_of("listener.name.a.nonsense=1")


def test_log_dirs_takes_precedence_over_log_dir():
    assert settings().log_dirs == ("/tmp/kafka-logs",)
    assert settings("log.dir=/one\n").log_dirs == ("/one",)
    assert settings("log.dir=/one\nlog.dirs=/a, /b\n").log_dirs == ("/a", "/b")


def test_synonyms_and_fallbacks():
    """node.id is broker.id, and the default of the connection timeout is the session timeout."""
    parsed = BrokerSettings.from_text("node.id=7\nzookeeper.connect=a:1\nzookeeper.session.timeout.ms=500")
    assert parsed["broker.id"] == parsed["node.id"] == 7
    assert parsed["zookeeper.connection.timeout.ms"] == 500
    assert settings("zookeeper.connection.timeout.ms=9\n")["zookeeper.connection.timeout.ms"] == 9


# --- listeners --------------------------------------------------------------------------------------------------------


def test_listeners():
    """Listener names become upper case, hosts may have any form, and advertised listeners replace the addresses."""
    parsed = settings(
        "listeners=plaintext://:9092,INTERNAL://[::1]:0\n"
        "advertised.listeners=PLAINTEXT://broker-1.example.org:19092,INTERNAL://10.0.0.1:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT, internal:plaintext\n"
        "inter.broker.listener.name=internal\n"
    )
    assert parsed.listeners == (Endpoint("PLAINTEXT", "", 9092), Endpoint("INTERNAL", "::1", 0))
    assert parsed.advertised_listeners == (
        Endpoint("PLAINTEXT", "broker-1.example.org", 19092),
        Endpoint("INTERNAL", "10.0.0.1", 9093),
    )
    assert parsed.inter_broker_listener == "INTERNAL"


def test_default_listeners():
    """The default listener has Kafka's port; advertised listeners default to the listeners."""
    parsed = settings()
    assert parsed.listeners == parsed.advertised_listeners == (Endpoint("PLAINTEXT", "", 9092),)
    assert parsed.inter_broker_listener == "PLAINTEXT"


def test_one_port_for_ipv4_and_ipv6():
    """An IPv4 and an IPv6 address may share a port, and several listeners may let the system choose one."""
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=A\n"
    assert len(settings(protocols + "listeners=A://127.0.0.1:9092,B://[::1]:9092\n").listeners) == 2
    assert len(settings(protocols + "listeners=A://127.0.0.1:0,B://127.0.0.1:0\n").listeners) == 2
    assert "have the same port" in error_of(protocols + "listeners=A://127.0.0.1:9,B://127.0.0.2:9")
    assert "have the same port" in error_of(protocols + "listeners=A://:9,B://[::1]:9")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listeners=9092", "'9092' is not NAME://host:port"),
        ("listeners=PLAINTEXT://a:b", "is not NAME://host:port"),
        ("listeners=PLAINTEXT://::1:9092", "IPv6 address needs brackets"),
        ("listeners=PLAINTEXT://a:65536", "the port is not between 0 and 65535"),
        ("listeners=,", "at least one listener"),
        ("listeners=PLAINTEXT://a:1,plaintext://b:2", "the listener PLAINTEXT is listed twice"),
        ("listeners=CLIENT://a:1", "listener.security.protocol.map has no protocol for CLIENT"),
        ("listeners=PLAINTEXT://0.0.0.0:1", "no client can connect to 0.0.0.0"),
        ("advertised.listeners=PLAINTEXT://[::]:1", "no client can connect to ::"),
        ("listener.security.protocol.map=A:PLAINTEXT,PLAINTEXT:PLAINTEXT\nadvertised.listeners=A://a:1", "listener A"),
        ("listener.security.protocol.map=A", "'A' is not NAME:PROTOCOL"),
        ("listener.security.protocol.map=A:TLS", "unknown protocol; the protocols are PLAINTEXT, SSL"),
        ("listener.security.protocol.map=A:SSL,a:SSL", "the name A is listed twice"),
        ("control.plane.listener.name=OTHER", "listener.security.protocol.map has no protocol for OTHER"),
        (
            "control.plane.listener.name=SSL",
            "control.plane.listener.name=SSL must be one of the advertised listeners, which are PLAINTEXT",
        ),
        (
            "control.plane.listener.name=plaintext",
            "control.plane.listener.name and the inter-broker listener must be different listeners; both are PLAINTEXT",
        ),
        ("control.plane.listener.name=", "control.plane.listener.name is empty"),
        ("inter.broker.listener.name=OTHER", "the inter-broker listener OTHER is not advertised, only PLAINTEXT"),
        ("inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT", "only one of"),
    ],
)
def test_invalid_listeners(text, message):
    """The error contains the line, the listener and the reason."""
    message_found = error_of(text)
    assert message in message_found
    assert message_found.startswith("broker.properties, line ")


# --- combinations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("process.roles=broker", "kreplica needs ZooKeeper"),
        ("node.id=2", "must be equal"),
        ("broker.id=1001", "from 0 to reserved.broker.max.id"),
        ("broker.id=-1", "broker.id=-1 must be set"),
        ("zookeeper.connect=", "must be set, e.g. 127.0.0.1:2181"),
        ("log.retention.ms=0", "log.retention.ms=0 must be at least 1, or -1"),
        ("log.retention.hours=-2", "must be at least 1, or -1"),
        ("log.retention.minutes=0", "must be at least 1, or -1"),
        ("log.roll.ms=0", "must be at least 1"),
        ("log.roll.jitter.ms=-1", "must be at least 0"),
        ("default.replication.factor=0", "must be at least 1"),
        ("log.cleaner.dedupe.buffer.size=4000000\nlog.cleaner.threads=4", "more than 1 MiB for each compaction thread"),
        ("replica.socket.timeout.ms=499", "the timeout must be at least the wait"),
        ("replica.lag.time.max.ms=499", "the wait must be at most the lag"),
        ("offsets.commit.required.acks=4", "must be -1 or at most the replication factor"),
        ("queued.max.request.bytes=1000", "must be at least the maximum request size"),
        ("group.consumer.session.timeout.ms=5000", "the interval must be shorter than the timeout"),
        ("max.connections.per.ip=0", "would allow no connections"),
        ("max.connections.per.ip.overrides=10.0.0.1", "a list of ADDRESS:NUMBER"),
    ],
)
def test_inconsistent_settings(text, message):
    """Combinations that Kafka refuses are refused with an error that contains name and value."""
    assert message in error_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "log.retention.ms=-1",
        "log.cleaner.enable=false\nlog.cleaner.dedupe.buffer.size=1",
        "log.cleaner.threads=0",
        "queued.max.request.bytes=0",
        "broker.id=5000\nreserved.broker.max.id=5000",
        "replica.fetch.wait.max.ms=1000\nreplica.lag.time.max.ms=1000",
    ],
)
def test_consistent_settings_at_the_limit(text):
    settings(text)


def test_required_settings():
    """The two settings without a default are named in the error."""
    with pytest.raises(SettingsError, match=r"file: broker\.id=-1 must be set"):
        BrokerSettings.from_text("zookeeper.connect=a:1", origin="file")
    with pytest.raises(SettingsError, match=r"file: zookeeper\.connect= must be set"):
        BrokerSettings.from_text("broker.id=1", origin="file")


def test_load_file(tmp_path):
    """Errors in a file contain its path."""
    path = tmp_path / "broker.properties"
    path.write_text(MINIMUM + "broker.rack=Zürich\n", encoding="utf-8")
    assert load(path)["broker.rack"] == "Zürich"
    assert load(str(path), ["broker.rack=b"])["broker.rack"] == "b"
    path.write_bytes(b"broker.rack=\xff\n")
    with pytest.raises(SettingsError, match=r"broker\.properties cannot be read"):
        load(path)
    with pytest.raises(SettingsError, match="nowhere cannot be read"):
        load(tmp_path / "nowhere")


def test_earlier_name_of_a_renamed_setting_works_with_a_warning() -> None:
    earlier, current = (f"kreplica.address.outstanding.{word}.bytes" for word in ("answer", "response"))
    parsed = BrokerSettings.from_text(f"{MINIMUM}{earlier}=5000\n")
    assert parsed[current] == 5000
    assert parsed.warnings == (f"{earlier} is deprecated; use {current}",)
    assert BrokerSettings.from_text(f"{MINIMUM}{earlier}=5000\n", [f"{current}=6000"])[current] == 6000
