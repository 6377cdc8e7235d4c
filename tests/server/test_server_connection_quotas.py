"""Quotas for IP addresses, and connection limits that change at run time, in a simulated cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from quota_scene import QuotaScene

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE
from kreplica.server.protocol.limits import UNLIMITED
from kreplica.server.quotas.connection_limits import ListenerLimit
from kreplica.wire.messages import DESCRIBE_CLIENT_QUOTAS, INCREMENTAL_ALTER_CONFIGS

Row = dict[str, Any]

INVALID_REQUEST, INVALID_CONFIG = 42, 40
BROKER = 4
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def scene() -> QuotaScene:
    return QuotaScene()


def ip(name: str | None) -> list[Row]:
    return [{"entity_type": "ip", "entity_name": name}]


def rate(value: float, *, remove: bool = False) -> Row:
    return {"key": CONNECTION_CREATION_RATE, "value": value, "remove": remove}


class TestQuotasOfAddresses:
    """``connection_creation_rate`` with AlterClientQuotas and DescribeClientQuotas."""

    def test_quotas_take_effect_and_are_described(self, scene: QuotaScene) -> None:
        """There are quotas for an address, a host name and the default; removed quotas no longer have an effect."""
        limits = scene.program.connection_limits.limits
        host = scene.program.runtime.reactor._host  # resolves to itself in the simulation
        for name, value in (("192.0.2.1", 5), ("::ffff:192.0.2.9", 6), (None, 20)):
            scene.set_quota(CONNECTION_CREATION_RATE, value, ip(name))
        assert [limits._rate_of(each) for each in ("192.0.2.1", "192.0.2.9", "192.0.2.3", host)] == [5, 6, 20, 20]

        def describe(*components: tuple[str, int, str | None], strict: bool = False) -> list[Row]:
            rows = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
            answer = scene.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": rows, "strict": strict})
            assert answer["error_code"] == 0
            return [{row["entity"][0]["entity_name"]: row["values"][0]["value"]} for row in answer["entries"]]

        expected = [{"192.0.2.1": 5.0}, {"::ffff:192.0.2.9": 6.0}, {None: 20.0}]
        for found in (describe(), describe(("ip", 2, None)), describe(("ip", 2, None), strict=True)):
            assert sorted(found, key=str) == sorted(expected, key=str)
        assert describe(("ip", 0, "192.0.2.1")) == [{"192.0.2.1": 5.0}]
        assert describe(("ip", 1, None)) == [{None: 20.0}]
        assert describe(("user", 2, None)) == []
        for name in ("192.0.2.1", "::ffff:192.0.2.9", None):
            scene.set_quota(CONNECTION_CREATION_RATE, 0, ip(name), remove=True)
        assert [limits._rate_of(each) for each in ("192.0.2.1", "192.0.2.9")] == [UNLIMITED, UNLIMITED]
        assert describe() == []

    def test_host_names_are_looked_up(self, scene: QuotaScene, monkeypatch: pytest.MonkeyPatch) -> None:
        """The quota applies to the address of the host; DescribeClientQuotas shows its name."""
        reactor = scene.program.runtime.reactor
        resolve = reactor.resolve
        monkeypatch.setattr(
            reactor, "resolve", lambda name: resolve(name).addCallback(lambda _: "192.0.2.7"), raising=True
        )
        scene.set_quota(CONNECTION_CREATION_RATE, 7, ip(reactor._host))
        assert scene.program.connection_limits.limits._rate_of("192.0.2.7") == 7
        scene.set_quota(CONNECTION_CREATION_RATE, 0, ip(reactor._host), remove=True)
        assert scene.program.connection_limits.limits._rate_of("192.0.2.7") == UNLIMITED

    def test_invalid_requests(self, scene: QuotaScene) -> None:
        """Invalid requests are rejected with Kafka's error codes."""
        user = [{"entity_type": "user", "entity_name": "alice"}]
        row = scene.alter([*ip("192.0.2.1"), *user], rate(5))
        assert (row["error_code"], "should not be used with user" in row["error_message"]) == (INVALID_REQUEST, True)
        row = scene.alter(ip("no.such.host"), rate(5))
        assert row["error_message"] == "no.such.host is not a valid IP or resolvable host."
        for entity, op in (
            (ip("192.0.2.1"), {"key": PRODUCER_BYTE_RATE, "value": 5.0, "remove": False}),
            (user, rate(5)),
            (ip("192.0.2.1"), rate(2.5)),
            (ip("192.0.2.1"), rate(2**31)),
            (ip("192.0.2.1"), rate(-1)),
            (ip(""), rate(1)),
        ):
            assert scene.alter(entity, op)["error_code"] == INVALID_REQUEST
        components = [{"entity_type": kind, "match_type": 2, "match": None} for kind in ("user", "ip")]
        answer = scene.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": components, "strict": False})
        assert answer["error_code"] == INVALID_REQUEST

    def test_znodes(self, scene: QuotaScene) -> None:
        """The znodes, including the notification, are the same as Apache Kafka's."""
        scene.set_quota(CONNECTION_CREATION_RATE, 3, ip("2001:db8::1"))
        client = scene.program.client
        data, _ = scene.cluster.run_until(client.get_data("/config/ips/2001%3Adb8%3A%3A1"))
        assert json.loads(data) == {"version": 1, "config": {CONNECTION_CREATION_RATE: "3"}}
        names = scene.cluster.run_until(client.get_children("/config/changes"))
        data, _ = scene.cluster.run_until(client.get_data(f"/config/changes/{max(names)}"))
        assert json.loads(data) == {"version": 2, "entity_path": "ips/2001%3Adb8%3A%3A1"}
        scene.set_quota(CONNECTION_CREATION_RATE, 0, ip("2001:db8::1"), remove=True)


class TestSettingsAtRunTime:
    """The limits are changed with IncrementalAlterConfigs, for one broker and for the cluster."""

    def alter(self, scene: QuotaScene, broker: str, **values: str | None) -> int:
        rows = [
            {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
            for name, value in values.items()
        ]
        resources = [{"resource_type": BROKER, "resource_name": broker, "configs": rows}]
        body = {"resources": resources, "validate_only": False}
        code: int = scene.ask(INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"][0]["error_code"]
        return code

    def test_limits_change(self, scene: QuotaScene) -> None:
        """While a listener has its own settings, they override those of the broker."""
        limits = scene.program.connection_limits.limits
        listener = "listener.name.plaintext.max.connections"
        assert not limits.is_limited
        assert self.alter(scene, "", **{"max.connections": "100", "max.connection.creation.rate": "50"}) == 0
        assert limits.is_limited
        broker = str(scene.program.broker_id)
        assert self.alter(scene, broker, **{listener: "20", "max.connections.per.ip": "7"}) == 0
        overrides = "192.0.2.1:3,[2001:db8::1]:4,no.such.host:5"
        assert self.alter(scene, broker, **{"max.connections.per.ip.overrides": overrides}) == 0
        assert (limits.settings.connections, limits.settings.rate, limits.settings.per_address) == (100, 50, 7)
        assert limits.settings.listeners == {"PLAINTEXT": ListenerLimit(20, 50)}
        assert limits.settings.protected is None
        assert limits._overrides == {"192.0.2.1": 3, "2001:db8::1": 4}
        removed = {listener: None, "max.connections.per.ip": None, "max.connections.per.ip.overrides": None}
        assert self.alter(scene, broker, **removed) == 0
        assert self.alter(scene, "", **{"max.connections": None, "max.connection.creation.rate": None}) == 0
        assert not limits.is_limited
        assert limits._overrides == {}

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("max.connections", "0"),
            ("max.connection.creation.rate", "0"),
            ("max.connections.per.ip", "0"),
            ("listener.name.plaintext.max.connections", "0"),
            ("max.connections.per.ip.overrides", "192.0.2.1"),
            ("max.connections.per.ip.overrides", "192.0.2.1:-1"),
            ("max.connections.per.ip.overrides", "a b:1"),
        ],
    )
    def test_values_that_allow_no_connection(self, scene: QuotaScene, name: str, value: str) -> None:
        """Values that allow no connection, and malformed ones, are rejected at run time."""
        assert self.alter(scene, "", **{name: value}) == INVALID_CONFIG
