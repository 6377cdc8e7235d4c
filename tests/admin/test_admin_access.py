"""Access rules of the admin API."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from random import Random
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from http_in_memory import Api, Resource, SynchronousOffload
from twisted.internet.task import Clock

from kreplica.admin.http.access import Access
from kreplica.admin.http.api import JsonResponse, RawResponse, Route
from kreplica.admin.security.guard import Guard
from kreplica.errors import SettingsError
from kreplica.runtime import Runtime
from kreplica.runtime.os_disk import OsDisk
from kreplica.security.tls import reloading
from kreplica.service.admin.access import admin_access, admin_token
from kreplica.service.admin.tls import admin_tls, load_admin_tls
from kreplica.settings.broker_settings import BrokerSettings
from tests.support.standalone import StandaloneProcess

TOKEN = "0123456789abcdef"


async def answered(call):
    return JsonResponse({})


def api(access=None, guard=None):
    page = RawResponse(b"<p>", "text/html")

    async def paged(call):
        return page

    return Api(
        Resource(
            Route("GET", "/v1/things", answered, "Things."),
            Route("POST", "/v1/things", answered, "Create a thing.", body={"type": "object"}),
            Route("GET", "/health/live", answered, "Alive."),
            Route("GET", "/", paged, "A page."),
            Route("GET", "/dashboard/{file:path}", paged, "A file."),
        ),
        access=access,
        guard=guard,
    )


# --- browsers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]"])
def test_local_names(host):
    """Requests to a name of this machine are accepted."""
    assert api().ask("GET", "/v1/things", {"Host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", "", None])
def test_other_names(host):
    """Requests to other host names are refused, as protection against DNS rebinding."""
    answer = api().ask("GET", "/v1/things", {"Host": host})
    assert answer.status in (400, 421)
    if answer.status == 421:
        assert "localhost" in answer.json()["what_to_do"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_pages_of_other_origins_cannot_write(headers):
    """Writes from pages of another origin are refused."""
    answer = api().ask("POST", "/v1/things", {"Host": "localhost:8080", **headers}, {})
    assert (answer.status, answer.json()["title"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://localhost:8080"}, {"Origin": "https://LOCALHOST:8080"}, {"Sec-Fetch-Site": "none"}],
)
def test_dashboard_and_programs_can_write(headers):
    """Writes from the dashboard, and from programs without an Origin, are accepted."""
    assert api().ask("POST", "/v1/things", {"Host": "localhost:8080", **headers}, {}).status == 200


def test_content_security_headers():
    """Every response has headers that forbid foreign content and embedding in frames."""
    for path in ("/", "/v1/things", "/nothing"):
        headers = api().ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic " + TOKEN, TOKEN, "Bearer", "Bearer " + TOKEN + "x"])
def test_request_without_the_token(given):
    """With a configured token, requests without it are rejected."""
    guarded = api(Access(hosts=None), Guard(token=TOKEN.encode()))
    for method, body in (("GET", None), ("POST", {})):
        answer = guarded.ask(method, "/v1/things", {"Authorization": given}, body)
        assert (answer.status, answer.json()["title"]) == (401, "UNAUTHORIZED")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.body.decode()


def test_request_with_the_token():
    """A request with the token is accepted under any host name."""
    guarded = api(Access(hosts=None), Guard(token=TOKEN.encode()))
    headers = {"Authorization": f"bearer  {TOKEN}", "Host": "kafka.example"}
    assert guarded.ask("GET", "/v1/things", headers).status == 200
    assert guarded.ask("POST", "/v1/things", headers, {}).status == 200


@pytest.mark.parametrize("path", ["/health/live", "/", "/dashboard/app.js"])
def test_paths_without_a_token(path):
    """Health checks and the dashboard's files need no token."""
    assert api(Access(hosts=None), Guard(token=TOKEN.encode())).ask("GET", path).status == 200


def test_openapi_document_requires_the_token():
    """The OpenAPI document requires a token if and only if one is configured."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with_token = api(Access(hosts=None), Guard(token=TOKEN.encode())).ask("GET", "/openapi.json", headers).json()
    assert with_token["security"] == [{"token": []}]
    assert with_token["paths"]["/health/live"]["get"]["security"] == []
    assert api().ask("GET", "/openapi.json").json()["security"] == []


# --- settings --------------------------------------------------------------------------------------------------------

BASE = "broker.id=1\nzookeeper.connect=127.0.0.1:2181\n"


def settings(**given):
    lines = "".join(f"kreplica.admin.{name.replace('_', '.')}={value}\n" for name, value in given.items())
    return BrokerSettings.from_text(BASE + lines, (), origin="test")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "[::]", "192.0.2.1", "kafka.example"])
def test_listener_reachable_from_other_machines(host):
    """A non-loopback listener without a token and TLS is refused, with advice."""
    for more in ({}, {"token_file": "/t"}, {"tls_certificate_file": "/c", "tls_key_file": "/k"}):
        with pytest.raises(SettingsError, match="listen on 127"):
            settings(listener=f"{host}:8080", **more)
    settings(listener=f"{host}:8080", token_file="/t", tls_certificate_file="/c", tls_key_file="/k")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "[::1]"])
def test_loopback_listener(host):
    """A loopback listener needs neither token nor TLS."""
    assert admin_token(OsDisk(), settings(listener=f"{host}:0")) is None
    assert host.strip("[]") in admin_access(settings(listener=f"{host}:0"), host.strip("[]")).hosts


def test_certificate_without_a_key():
    """A certificate without a key is rejected on any interface."""
    with pytest.raises(SettingsError, match="must both be set"):
        settings(listener="127.0.0.1:0", tls_certificate_file="/c")


@pytest.mark.parametrize("content", [None, b"", b"short", b"two words are not a token", b"\xff" * 20])
def test_file_without_a_token(tmp_path, content):
    """An empty token file is refused, and the error names the file."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=str(path)):
        admin_token(OsDisk(), settings(token_file=path))


def test_file_with_a_token(tmp_path):
    """A trailing line feed in the token file is ignored."""
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert admin_token(OsDisk(), settings(token_file=path)) == TOKEN.encode()


def certificate(directory, key=None):
    """Write a certificate for 127.0.0.1 and its key to files."""
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kreplica")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(own, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (directory / "cert.pem").write_bytes(built.public_bytes(pem))
    private = (key or own).private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(private)
    return directory / "cert.pem", directory / "key.pem"


def test_invalid_certificate_files(tmp_path):
    """The error for a missing file, a malformed certificate or the wrong private key names the file."""
    cert, key = certificate(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(SettingsError, match="cannot load a PEM certificate"):
        load_admin_tls(OsDisk(), settings(tls_certificate_file=cert, tls_key_file=key))
    cert.write_text("nothing")
    with pytest.raises(SettingsError, match="contains no PEM certificate"):
        load_admin_tls(OsDisk(), settings(tls_certificate_file=cert, tls_key_file=key))
    with pytest.raises(SettingsError, match="absent"):
        load_admin_tls(OsDisk(), settings(tls_certificate_file=tmp_path / "absent", tls_key_file=key))


def test_changed_certificate_is_read_again(tmp_path):
    """New connections use the changed files; invalid ones are logged, and the previous certificate stays in use."""
    cert, key = certificate(tmp_path)
    clock = Clock()
    runtime = Runtime(clock, OsDisk(), SynchronousOffload(), Random(1), lambda: 0)
    tls = admin_tls(runtime, settings(tls_certificate_file=cert, tls_key_file=key))

    def served():
        clock.advance(reloading.CHECK_INTERVAL_S)
        tls.serverConnectionForTLS(None)  # detects changed files
        return tls.serverConnectionForTLS(None).get_context()

    first = served()
    assert served() is first
    certificate(tmp_path)
    second = served()
    assert second is not first
    cert.write_text("nothing")
    assert served() is second


def test_broker_with_token_and_tls(tmp_path):
    """A broker with a token and TLS answers only clients that have the token and trust the certificate."""
    cert, key = certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    overrides = {"token.file": token, "tls.certificate.file": cert, "tls.key.file": key}
    arguments = [word for name, value in overrides.items() for word in ("--override", f"kreplica.admin.{name}={value}")]
    trusting = ssl.create_default_context(cafile=str(cert))
    with StandaloneProcess(tmp_path / "process", arguments=tuple(arguments)) as process:
        url = f"https://127.0.0.1:{process.admin_port}/v1/cluster"
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with urlopen(Request(url, headers=headers), context=trusting) as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError, match="401"):
            urlopen(url, context=trusting)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urlopen(Request(url, headers=headers))
