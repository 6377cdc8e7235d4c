"""SASL mechanisms from plugins, on real listeners."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sasl_scene import AUTHENTICATION_FAILED, Brokers, settings, with_brokers
from twisted.internet.defer import Deferred

import kreplica.plugins
from kreplica.errors import SettingsError
from kreplica.security.sasl.mechanisms import unsupported
from kreplica.server.authentication import sasl_config
from kreplica.service.plugins.sasl_mechanisms import plugin_mechanisms
from kreplica.wire.messages import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.support.coordinator import CoordinatorProcess

PLUGIN = """
from twisted.internet import reactor
from twisted.internet.task import deferLater
from zope.interface import implementer

from kreplica.interfaces import AuthenticationError, ISaslMechanism, Plugin

code = Plugin("X-CODE", ISaslMechanism, "kreplica.plugins.code:Code", "Accepts a code.", {"code": "The code."})
waiting = []


@implementer(ISaslMechanism)
class Code:
    def __init__(self, context):
        self.code = context.settings["code"].encode()

    def new_exchange(self, listener):
        return Exchange(self.code, listener)


class Exchange:
    user = expires_ms = None

    def __init__(self, code, listener):
        self.code, self.listener = code, listener

    def step(self, token):
        name, _, code = token.partition(b"=")
        if name == b"broken":
            raise KeyError("an error of the plugin")
        if code != self.code:
            raise AuthenticationError("wrong code", logged="wrong code on " + self.listener)
        return self.later(name.decode()) if name != b"now" else self.done("now")

    def done(self, name):
        self.user = name
        return b"welcome"

    async def later(self, name):
        if name == "never":
            waiting.append(self)
            try:
                await deferLater(reactor, 1000, lambda: None)
            finally:
                waiting.remove(self)
        await deferLater(reactor, 0.01, lambda: None)
        if name == "broken-later":
            raise KeyError("an error of the plugin")
        return self.done(name)
"""
SETTINGS = """
    listener.name.local.sasl.enabled.mechanisms=PLAIN,X-CODE
    kreplica.plugin.X-CODE.code=1234
"""
REJECTED = "Authentication failed: internal error of the broker"


async def log_in(scene: Brokers, token: bytes) -> tuple[Any, dict[str, Any]]:
    connection = await scene.unauthenticated("LOCAL")
    response = await connection.request(SASL_HANDSHAKE, 1, {"mechanism": "X-CODE"})
    assert response == {"error_code": 0, "mechanisms": ["PLAIN", "X-CODE"]}
    return connection, await connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": token})


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    place = tmp_path / "kreplica" / "plugins"
    place.mkdir(parents=True)
    (place / "code.py").write_text(PLUGIN)
    monkeypatch.setattr(kreplica.plugins, "__path__", [*kreplica.plugins.__path__, str(place)])


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the time within which a connection must be authenticated from 30 to 3 seconds."""
    monkeypatch.setattr(sasl_config, "SaslConfig", partial(sasl_config.SaslConfig, timeout_s=3.0))


@pytest.mark.usefixtures("plugin", "short_timeout")
def test_mechanism_in_one_file(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, logged: list[str]
) -> None:
    """The mechanism may respond asynchronously; its errors reject the client, and a closed connection cancels it."""

    async def scenario(scene: Brokers) -> None:
        for name in (b"now", b"later"):
            connection, response = await log_in(scene, name + b"=1234")
            assert (response["error_code"], response["auth_bytes"]) == (0, b"welcome")
            await connection.request(METADATA, 1, {"topics": []})
            assert f"User:{name.decode()}" in scene.users
            await connection.close()
        for token, message in (
            (b"now=1", "Authentication failed: wrong code"),
            (b"broken=1234", REJECTED),
            (b"broken-later=1234", REJECTED),
        ):
            connection, response = await log_in(scene, token)
            assert (response["error_code"], response["error_message"]) == (AUTHENTICATION_FAILED, message)
        assert any("failed: wrong code on LOCAL" in text for text in logged)
        assert scene.brokers[0].plugins.errors() == {"X-CODE": 2}

        import kreplica.plugins.code as module

        connection = await scene.unauthenticated("LOCAL")
        await connection.request(SASL_HANDSHAKE, 1, {"mechanism": "X-CODE"})
        unanswered: Deferred[Any] = connection.request(SASL_AUTHENTICATE, 1, {"auth_bytes": b"never=1234"})
        unanswered.addErrback(lambda _: None)
        while not module.waiting:
            await scene.pause()
        connection.abort()
        while module.waiting:
            await scene.pause()

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, SETTINGS)


def test_unknown_mechanism(tmp_path: Path, certificates: Path) -> None:
    """The error for Kerberos names the alternatives."""
    chosen = settings(1, tmp_path, certificates, "127.0.0.1:1", "listener.name.short.sasl.enabled.mechanisms=GSSAPI")
    with pytest.raises(SettingsError, match="of the listener SHORT=GSSAPI: the mechanism is not supported") as caught:
        plugin_mechanisms(chosen)
    assert "use SCRAM-SHA-512, OAUTHBEARER or client certificates (SSL)" in str(caught.value)
    assert "Kerberos" not in unsupported("X", "sasl.mechanism")
