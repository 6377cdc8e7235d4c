"""Listeners of a simulated cluster with authentication and ACLs.

The listeners have SASL without TLS: OpenSSL draws its own random numbers, so a run with TLS could not be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.security import secured_endpoint_maker
from kreplica.security.sasl.credentials import PasswordCredentials
from kreplica.security.sasl.plain import PLAIN

SECURED_PORT, INTER_BROKER_PORT = 9093, 9094
"""Ports of the listeners for users and for brokers; the plaintext listener is for administrators."""

SESSION_LIFETIME_MS = 10_000

ADMINISTRATOR, ADMINISTRATOR_PASSWORD = "administrator", "password of the administrator"
_BROKER, _BROKER_PASSWORD = "broker", "password of the brokers"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def secured_settings(number: int, plaintext_port: int, session_lifetime_ms: int) -> list[str]:
    """Return the settings of a broker with three listeners.

    Clients of the plaintext listener are super users; brokers use PLAIN; users use PLAIN or SCRAM.

    :param session_lifetime_ms: ``connections.max.reauth.ms``.
    """
    listeners = {"PLAINTEXT": plaintext_port, "USERS": SECURED_PORT, "BROKERS": INTER_BROKER_PORT}
    of_users = _jaas({ADMINISTRATOR: ADMINISTRATOR_PASSWORD})
    of_brokers = f'{_jaas({_BROKER: _BROKER_PASSWORD}, f" username={_BROKER} password={_quote(_BROKER_PASSWORD)}")}'
    return [
        "listeners=" + ",".join(f"{name}://broker-{number}:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name=BROKERS",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.users.plain.sasl.jaas.config={of_users}",
        f"listener.name.brokers.plain.sasl.jaas.config={of_brokers}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        f"super.users=User:{_BROKER};User:{ADMINISTRATOR};User:ANONYMOUS",
        f"connections.max.reauth.ms={session_lifetime_ms}",
    ]


def administrator_endpoint(random: Random) -> EndpointMaker:
    """Return a function that creates endpoints that authenticate as the administrator."""
    credentials = PasswordCredentials(PLAIN, ADMINISTRATOR, ADMINISTRATOR_PASSWORD, random=random)
    return secured_endpoint_maker(None, credentials, tcp_endpoint)


def _jaas(users: Mapping[str, str], options: str = "") -> str:
    return f"{_LOGIN}{options}{''.join(f' user_{name}={_quote(password)}' for name, password in users.items())};"


def _quote(text: str) -> str:
    return f'"{text}"'
