"""Clients' tokens: requests, replacement before they expire, retries, and errors without secrets."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest

from kreplica.blocking.coroutines import run
from kreplica.errors import SettingsError
from kreplica.security.client_config import parse_client_config
from kreplica.security.oauth.login import RETRY_S, TokenLogin
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.oauth.refresh_times import RefreshRules
from kreplica.security.oauth.token_requests import ClientSecret, HttpRequest, HttpResponse, token_request
from kreplica.security.sasl.credentials import CredentialsUnavailable
from tests.support.token_server import SECRET, claims

LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CLIENT = f'{LOGIN} required clientId="alice" clientSecret="{SECRET}" scope="a b" extension_traceId="7";'
URL = "https://issuer.example/token"
SIGNING_KEY = "k" * 64
"""Key that signs the tokens; any key can be used, because clients do not verify their tokens."""


def config(**changes: str | None) -> dict[str, str]:
    base: dict[str, str | None] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": CLIENT,
        "sasl.oauthbearer.token.endpoint.url": URL,
    }
    changed = base | {name.replace("_", "."): value for name, value in changes.items()}
    return {name: value for name, value in changed.items() if value is not None}


def options(**changes: str | None) -> LoginOptions:
    found = parse_client_config(config(**changes)).sasl
    assert isinstance(found, LoginOptions)
    return found


class Io:
    """A token endpoint in virtual time."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0
        self.lifetime_s = 3600.0
        self.requests: list[HttpRequest] = []
        self.pauses: list[float] = []
        self.failures: list[HttpResponse | Exception] = []
        self.file = b""

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def seconds(self) -> float:
        return self.now_s - 1_700_000_000

    def random(self) -> float:
        return 0.0

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    async def exchange(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        return HttpResponse(200, json.dumps({"access_token": self.token()}).encode())

    async def read_file(self, path: str) -> bytes:
        if not self.file:
            raise FileNotFoundError(2, "No such file or directory")
        return self.file

    def token(self) -> str:
        return jwt.encode(claims(self.now_s, exp=self.now_s + self.lifetime_s), SIGNING_KEY)


def unavailable() -> CredentialsUnavailable:
    return CredentialsUnavailable("no token could be obtained: refused")


def first_message(login: TokenLogin) -> str:
    return run(login.new_exchange()).step(b"").decode()


def test_token_request() -> None:
    io = Io()
    login = TokenLogin(options(), io)
    message = first_message(login)
    assert message.startswith("n,,\x01auth=Bearer ey")
    assert message.endswith("\x01traceId=7\x01\x01")
    (request,) = io.requests
    assert (request.method, request.url) == ("POST", URL)
    assert request.headers["Authorization"] == "Basic YWxpY2U6cGxhbnRlZC1zZWNyZXQtNA=="
    assert request.body == b"grant_type=client_credentials&scope=a+b"
    assert login.user == "alice"
    for shown in (repr(request), repr(options()), repr(login), str(vars(login)["_token"])):
        assert SECRET not in shown
        assert message.split()[1].split(".")[0] not in shown


def test_encoded_credentials() -> None:
    """RFC 6749 requires that the ID and the secret are encoded; Kafka does this only with a setting."""
    for urlencode, expected in ((True, "YSUzQWI6YyUyQmQ="), (False, "YTpiOmMrZA==")):
        request = token_request(URL, ClientSecret("a:b", "c+d", urlencode=urlencode))
        assert request.headers["Authorization"] == f"Basic {expected}"
        assert request.body == b"grant_type=client_credentials"


def test_replacement() -> None:
    """A token is used for 80 percent of its lifetime."""
    io = Io()
    login = TokenLogin(options(), io)
    first = first_message(login)
    io.now_s += 2879
    assert first_message(login) == first
    io.now_s += 1
    assert first_message(login) != first
    assert len(io.requests) == 2


def test_replacement_fails() -> None:
    """The previous token is used while it is valid, with an attempt every ten seconds."""
    io = Io()
    login = TokenLogin(options(sasl_login_retry_backoff_max_ms="0"), io)
    first = first_message(login)
    io.now_s += 3000
    io.failures = [unavailable(), unavailable()]
    assert first_message(login) == first
    assert first_message(login) == first
    assert len(io.requests) == 2
    io.now_s += RETRY_S
    assert first_message(login) == first
    assert len(io.requests) == 3
    io.failures = [unavailable()]
    io.now_s += 600
    with pytest.raises(CredentialsUnavailable, match="refused"):
        first_message(login)
    assert first_message(login) != first


def test_retries() -> None:
    """Failed requests are retried with growing delays; an error that the client caused is final."""
    io = Io()
    login = TokenLogin(options(), io)
    io.failures = [unavailable(), HttpResponse(503, b""), HttpResponse(500, b"<html>"), HttpResponse(200, b"{}")]
    first_message(login)
    assert io.pauses == [0.1, 0.2, 0.4, 0.8]

    io = Io()
    io.failures = [unavailable()] * 100
    with pytest.raises(CredentialsUnavailable) as caught:
        first_message(TokenLogin(options(sasl_login_retry_backoff_max_ms="1000"), io))
    assert caught.value.retriable
    assert sum(io.pauses) == pytest.approx(1.0)

    io = Io()
    body = b'{"error": "invalid_client", "error_description": "planted-secret-9"}'
    io.failures = [HttpResponse(401, body)]
    with pytest.raises(CredentialsUnavailable) as caught:
        first_message(TokenLogin(options(), io))
    assert str(caught.value) == f"{URL} rejected the token request with status 401 (invalid_client)"
    assert (caught.value.retriable, io.pauses) == (False, [])


@pytest.mark.parametrize("text", ["opaque", "", 5, None, "a.b.c", "..", jwt.encode({"sub": "x"}, SIGNING_KEY)])
def test_unusable_tokens(text: object) -> None:
    io = Io()
    io.failures = [HttpResponse(200, json.dumps({"access_token": text}).encode())]
    with pytest.raises(CredentialsUnavailable) as caught:
        first_message(TokenLogin(options(sasl_login_retry_backoff_max_ms="0"), io))
    assert not text or str(text) not in str(caught.value).replace(URL, "")


def test_token_file() -> None:
    """A token in a file is read again when it is time to replace it."""
    io = Io()
    chosen = options(sasl_oauthbearer_token_endpoint_url="file:///etc/token", sasl_jaas_config=f"{LOGIN} required;")
    login = TokenLogin(chosen, io)
    with pytest.raises(CredentialsUnavailable, match="/etc/token cannot be read: No such file"):
        first_message(login)
    io.file = io.token().encode() + b"\n"
    first = first_message(login)
    io.now_s += 3000
    io.file = io.token().encode()
    assert first_message(login) != first
    io.now_s += 4000
    with pytest.raises(CredentialsUnavailable, match="the token from file:///etc/token has expired"):
        first_message(login)
    io.file = b"\xff"
    with pytest.raises(CredentialsUnavailable, match="does not contain a token"):
        first_message(login)
    assert login.user == "the token's user"


def test_unsecured_token() -> None:
    io = Io()
    jaas = f'{LOGIN} required unsecuredLoginStringClaim_sub="bob" unsecuredLoginExtension_traceId="1";'
    login = TokenLogin(options(sasl_oauthbearer_token_endpoint_url=None, sasl_jaas_config=jaas), io)
    assert first_message(login).endswith(".\x01traceId=1\x01\x01")
    assert (login.user, io.requests) == ("bob", [])


@pytest.mark.parametrize(
    ("rules", "now_s", "issued_s", "expires_s", "expected_s"),
    [
        (RefreshRules(), 1000, 1000, 4600, 3880),
        (RefreshRules(), 2000, 1000, 4600, 3880),
        (RefreshRules(), 1000, None, 4600, 3880),
        (RefreshRules(), 1000, 1000, 1360, 1060),  # the buffer of 300 s applies first
        (RefreshRules(), 1000, 1000, 1300, 1240),  # too short for the buffer
        (RefreshRules(), 4200, 1000, 4600, 4260),
        (RefreshRules(buffer_s=0), 3870, 1000, 4600, 3930),  # not before the minimum period
        (RefreshRules(window_factor=0.5), 1000, 1000, 4600, 2800),
    ],
)
def test_refresh_times(
    rules: RefreshRules, now_s: int, issued_s: int | None, expires_s: int, expected_s: int
) -> None:
    """The times follow Kafka's rules (KIP-255)."""
    issued_ms = None if issued_s is None else issued_s * 1000
    assert rules.time_ms(now_s * 1000, issued_ms, expires_s * 1000, 0.0) == expected_s * 1000
    latest_ms = rules.time_ms(now_s * 1000, issued_ms, expires_s * 1000, 1.0)
    assert expected_s * 1000 <= latest_ms <= expires_s * 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl_jaas_config": None}, "sasl.jaas.config is not set"),
        ({"sasl_jaas_config": f"{LOGIN} required;"}, "no clientId and no clientSecret"),
        ({"sasl_jaas_config": f"{LOGIN} required"}, "sasl.jaas.config: column"),
        ({"sasl_jaas_config": CLIENT.replace("traceId", "auth")}, "the extension name 'auth' is not allowed"),
        ({"sasl_oauthbearer_token_endpoint_url": None}, "token.endpoint.url is not set"),
        ({"sasl_oauthbearer_token_endpoint_url": "http://issuer.example/"}, "use https://"),
        ({"sasl_login_refresh_window_factor": "0.4"}, "expected a number from 0.5 to 1"),
        ({"sasl_login_retry_backoff_ms": "1_0"}, "expected a number from 0"),
        ({"sasl_oauthbearer_header_urlencode": "yes"}, "expected true or false"),
        ({"sasl_login_callback_handler_class": "com.example.Login"}, "Java classes cannot be loaded"),
        ({"sasl_oauthbearer_token_endpoint_ur": "x"}, "Did you mean sasl.oauthbearer.token.endpoint.url?"),
    ],
)
def test_invalid_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        options(**changes)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_settings() -> None:
    jaas = CLIENT[:-1] + ' ssl.truststore.type="PEM" ssl.truststore.location="/ca.pem" ssl.enabled.protocols="TLSv1.3";'
    found = options(
        sasl_jaas_config=jaas,
        sasl_login_refresh_buffer_seconds="10",
        sasl_login_connect_timeout_ms="5000",
        sasl_oauthbearer_sub_claim_name="name",
        sasl_oauthbearer_header_urlencode="TRUE",
        sasl_login_callback_handler_class=f"{LOGIN.rpartition('.')[0]}.secured.OAuthBearerLoginCallbackHandler",
    )
    assert found.client is not None
    assert (found.client.urlencode, found.refresh.buffer_s, found.connect_timeout_s) == (True, 10, 5.0)
    assert (found.tls.truststore_location, found.tls.enabled_protocols) == ("/ca.pem", ("TLSv1.3",))


def test_options_of_spark() -> None:
    """Spark's options with the prefix ``kafka.`` support login with tokens too."""
    from kreplica.spark.connection_security import ConnectionSecurity

    security = ConnectionSecurity.of(config())
    assert isinstance(security.runtime().sasl, TokenLogin)
    assert SECRET not in repr(security)
    with pytest.raises(ValueError, match="has no clientId"):
        ConnectionSecurity.of(config(sasl_jaas_config=f"{LOGIN} required;"))
