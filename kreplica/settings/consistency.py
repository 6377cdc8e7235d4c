"""Rules about one or more broker settings that types and ranges cannot express; most are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

Values = Mapping[str, Any]


class Rule(NamedTuple):
    """A rule about settings.

    :param names: the settings that the rule is about.
    :param message: the end of the error message, after the names and values of the settings.
    """

    names: tuple[str, ...]
    holds: Callable[[Values], bool]
    message: str


def _positive_or_unlimited(name: str) -> Rule:
    return Rule(
        (name,),
        lambda values: values[name] is None or values[name] == -1 or values[name] >= 1,
        "must be at least 1, or -1 for unlimited",
    )


def _at_least(name: str, low: int) -> Rule:
    return Rule((name,), lambda values: values[name] is None or values[name] >= low, f"must be at least {low}")


def _cleaner_has_memory(values: Values) -> bool:
    threads = max(values["log.cleaner.threads"], 1)
    return not values["log.cleaner.enable"] or values["log.cleaner.dedupe.buffer.size"] // threads > 1024 * 1024


def _largest_request_fits(values: Values) -> bool:
    queued = values["queued.max.request.bytes"]
    return bool(queued <= 0 or queued >= values["socket.request.max.bytes"])


def _admin_is_protected(values: Values) -> bool:
    host = values["kreplica.admin.listener"].removeprefix("http://").rpartition(":")[0].strip("[]")
    is_protected = values["kreplica.admin.token.file"] and values["kreplica.admin.tls.certificate.file"]
    is_open = not values["kreplica.admin.listener"] or values["kreplica.admin.allow.anonymous"]
    return bool(is_open or _is_loopback(host) or is_protected)


def _has_token_if_authenticated(values: Values) -> bool:
    modes = set(values["kreplica.admin.authentication"])
    return bool(values["kreplica.admin.token.file"]) if modes - {"none"} else True


def _is_anonymous_without_token(values: Values) -> bool:
    modes = set(values["kreplica.admin.authentication"])
    return "none" not in modes or (modes == {"none"} and not values["kreplica.admin.token.file"])


def _has_client_authorities(values: Values) -> bool:
    names = ("kreplica.admin.tls.client.ca.file", "kreplica.admin.tls.certificate.file")
    return "certificate" not in values["kreplica.admin.authentication"] or all(values[name] for name in names)


def _has_zookeeper_identity(values: Values) -> bool:
    has_certificate = values["zookeeper.ssl.client.enable"] and values["zookeeper.ssl.keystore.location"]
    return bool(not values["zookeeper.set.acl"] or values["kreplica.zookeeper.sasl.jaas.config"] or has_certificate)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


RULES = (
    Rule(
        ("process.roles",),
        lambda values: not values["process.roles"],
        "is a KRaft setting; kreplica needs ZooKeeper: remove it",
    ),
    Rule(("zookeeper.connect",), lambda values: bool(values["zookeeper.connect"]), "must be set, e.g. 127.0.0.1:2181"),
    Rule(
        ("broker.id", "node.id"),
        lambda values: values["broker.id"] == values["node.id"],
        "are aliases and must be equal",
    ),
    Rule(
        ("broker.id",),
        lambda values: 0 <= values["broker.id"] <= values["reserved.broker.max.id"],
        "must be set to a number from 0 to reserved.broker.max.id that no other broker uses",
    ),
    _positive_or_unlimited("log.retention.ms"),
    _positive_or_unlimited("log.retention.minutes"),
    _positive_or_unlimited("log.retention.hours"),
    _at_least("log.roll.ms", 1),
    _at_least("log.roll.jitter.ms", 0),
    _at_least("log.flush.interval.ms", 0),
    _at_least("default.replication.factor", 1),
    _at_least("zookeeper.session.timeout.ms", 1),
    _at_least("zookeeper.connection.timeout.ms", 1),
    Rule(
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
        _cleaner_has_memory,
        "must leave more than 1 MiB for each compaction thread",
    ),
    Rule(
        ("replica.socket.timeout.ms", "replica.fetch.wait.max.ms"),
        lambda values: values["replica.fetch.wait.max.ms"] <= values["replica.socket.timeout.ms"],
        "are inconsistent: the timeout must be at least the wait, or idle fetches would fail",
    ),
    Rule(
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        lambda values: values["replica.fetch.wait.max.ms"] <= values["replica.lag.time.max.ms"],
        "are inconsistent: the wait must be at most the lag time, or idle followers would leave the ISR",
    ),
    Rule(
        ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
        lambda values: -1 <= values["offsets.commit.required.acks"] <= values["offsets.topic.replication.factor"],
        "are inconsistent: the acks must be -1 or at most the replication factor",
    ),
    Rule(
        ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
        lambda values: values["group.consumer.heartbeat.interval.ms"] < values["group.consumer.session.timeout.ms"],
        "are inconsistent: the interval must be shorter than the timeout, or sessions would expire between heartbeats",
    ),
    Rule(
        ("queued.max.request.bytes", "socket.request.max.bytes"),
        _largest_request_fits,
        "are inconsistent: the limit of queued bytes must be at least the maximum request size",
    ),
    Rule(
        ("max.connections.per.ip", "max.connections.per.ip.overrides"),
        lambda values: values["max.connections.per.ip"] != 0 or bool(values["max.connections.per.ip.overrides"]),
        "would allow no connections: set max.connections.per.ip to at least 1, or list addresses in the overrides",
    ),
    Rule(
        ("zookeeper.set.acl",),
        _has_zookeeper_identity,
        "needs a user of ZooKeeper: set kreplica.zookeeper.sasl.jaas.config, or zookeeper.ssl.client.enable=true and "
        "zookeeper.ssl.keystore.location",
    ),
    Rule(
        ("kreplica.admin.tls.certificate.file", "kreplica.admin.tls.key.file"),
        lambda values: (
            bool(values["kreplica.admin.tls.certificate.file"]) == bool(values["kreplica.admin.tls.key.file"])
        ),
        "must both be set or both be empty",
    ),
    Rule(
        ("kreplica.admin.listener", "kreplica.admin.token.file", "kreplica.admin.tls.certificate.file"),
        _admin_is_protected,
        "do not protect the admin API, which other machines can reach: set a token file and a TLS certificate, or "
        "listen on 127.0.0.1; kreplica.admin.allow.anonymous=true lets every client use it",
    ),
    Rule(
        ("kreplica.admin.authentication", "kreplica.admin.token.file"),
        _has_token_if_authenticated,
        "are inconsistent: brokers authenticate to each other with the token, so set a token file",
    ),
    Rule(
        ("kreplica.admin.authentication", "kreplica.admin.token.file"),
        _is_anonymous_without_token,
        "are inconsistent: none cannot be combined with other ways to authenticate or with a token file",
    ),
    Rule(
        ("kreplica.admin.authentication", "kreplica.admin.tls.client.ca.file", "kreplica.admin.tls.certificate.file"),
        _has_client_authorities,
        "are inconsistent: client certificates need TLS and the certificate authorities to trust",
    ),
)
"""All rules; the first violated one is reported."""
