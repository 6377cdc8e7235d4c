"""Secrets that the tests plant in settings, requests and files do not appear anywhere else."""

from __future__ import annotations

import gc
import re
import stat
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest
from authorization_client import Connection
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from sasl_scene import PASSWORDS, PLAIN_LOGIN, Brokers, with_brokers
from test_security_admin_api import TOKEN, Client
from twisted.internet.threads import deferToThread
from twisted.logger import formatEvent, globalLogPublisher

from kreplica.client import Admin, errors
from kreplica.wire.messages import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from tests.support.coordinator import CoordinatorProcess

SALT = b"a planted salt"
PLANTED = {
    **{f"password of {user}": password for user, password in PASSWORDS.items()},
    "admin token": TOKEN,
    "key password": "planted-key-password",
    "password of the key store for ZooKeeper": "planted-zookeeper-store",
    "password of the trust store for ZooKeeper": "planted-zookeeper-trust",
    "key of delegation tokens": "planted-token-key",
    "SCRAM password": "planted-scram-password",
    "password of another broker's user": "planted-other-broker",
    "wrong password": "planted-wrong-password",
    "wrong token": "planted-wrong-token",
    "wrong session password": "planted-session-password",
    "rejected setting": "planted-rejected-setting",
    "unknown setting": "planted-unknown-setting",
}
BROKER_CONFIGS = 4


@contextmanager
def capture_log_events() -> Iterator[list[str]]:
    """Collect the messages and the fields of all log events at any level."""
    texts: list[str] = []

    def observe(event: Any) -> None:
        fields = {name: value for name, value in event.items() if name != "log_source"}
        texts.append(f"{formatEvent(event)} {fields!r} {event.get('log_failure', '')}")

    globalLogPublisher.addObserver(observe)
    try:
        yield texts
    finally:
        globalLogPublisher.removeObserver(observe)


def encrypted_key(certificates: Path) -> tuple[str, str, str]:
    """Return the broker's certificates, its key encrypted with the planted password, and the key in plain text."""
    text = (certificates / "broker.pem").read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    key = load_pem_private_key(text[:at].encode(), None)
    password = BestAvailableEncryption(PLANTED["key password"].encode())
    return text[at:], key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, password).decode(), text[:at]


def one_line(pem: str) -> str:
    """Return PEM as in a properties file."""
    return pem.strip().replace("\n", "\\n")


def all_reprs() -> Iterator[str]:
    """Iterate over the ``repr`` of all instances of kreplica's classes in this process."""
    for each in gc.get_objects():
        if type(each).__module__.startswith("kreplica."):
            try:
                text = repr(each)
            except Exception:
                continue
            if len(text) < 10_000_000:
                yield f"{type(each).__qualname__}: {text}"


def secrets_in(text: str, secrets: dict[str, str]) -> list[str]:
    return [name for name, secret in secrets.items() if secret in text]


def files_below(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def test_planted_secrets(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret appears in a log at any level, an error, a metric, a response, a ``repr`` or a file of the broker."""
    chain, key, plain_key = encrypted_key(certificates)
    salted = pbkdf2_hmac("sha512", PLANTED["SCRAM password"].encode(), SALT, 4096)
    body = re.sub(r"-----.*?-----|\s", "", plain_key)
    secrets = {
        **PLANTED,
        "key": body[20:60],
        "encrypted key": re.sub(r"-----.*?-----|\s", "", key)[20:60],
        "salted password": b64encode(salted).decode(),
        "salted password in hexadecimal digits": salted.hex(),
        "salted password as bytes": repr(salted)[2:-1],
    }
    token = tmp_path / "given" / "admin-token"
    token.parent.mkdir()
    token.write_text(PLANTED["admin token"])
    jaas = f'{PLAIN_LOGIN} required username="admin" password="{PASSWORDS["admin"]}" user_admin="{PASSWORDS["admin"]}"'
    more = f"""
        authorizer.class.name=kafka.security.authorizer.AclAuthorizer
        super.users=User:admin
        kreplica.admin.listener=127.0.0.1:0
        kreplica.admin.authentication=basic
        kreplica.admin.token.file={token}
        delegation.token.secret.key={PLANTED["key of delegation tokens"]}
        zookeeper.ssl.keystore.password={PLANTED["password of the key store for ZooKeeper"]}
        zookeeper.ssl.truststore.password={PLANTED["password of the trust store for ZooKeeper"]}
        listener.name.sasl_ssl.ssl.keystore.type=PEM
        listener.name.sasl_ssl.ssl.keystore.location=
        listener.name.sasl_ssl.ssl.keystore.certificate.chain={one_line(chain)}
        listener.name.sasl_ssl.ssl.keystore.key={one_line(key)}
        listener.name.sasl_ssl.ssl.key.password={PLANTED["key password"]}
        listener.name.short.plain.sasl.jaas.config={jaas} user_peer="{PLANTED["password of another broker's user"]}";
    """
    shown: list[str] = []

    async def scenario(scene: Brokers) -> None:
        async with scene.cluster("SASL_SSL", "PLAIN", "admin") as cluster:
            await Admin(cluster).create_topic("orders", 1, 1)
        await scene.create_user("bob")
        for listener, mechanism, user, password in (
            ("LOCAL", "PLAIN", "alice", "wrong password"),
            ("SASL_SSL", "SCRAM-SHA-256", "bob", "wrong password"),
            ("SASL_SSL", "SCRAM-SHA-512", "bob", None),
        ):
            guess = None if password is None else PLANTED[password]
            async with scene.cluster(listener, mechanism, user, guess) as cluster:
                try:
                    await cluster.refresh()
                except errors.ClientError as error:
                    shown.append(f"{error} {error!r} {error.__cause__!r}")
        port, url = scene.port("LOCAL"), scene.brokers[0].admin.url
        await deferToThread(lambda: shown.extend(send_by_protocol(port, salted)))
        await deferToThread(lambda: shown.extend(send_by_rest(url)))
        shown.extend(all_reprs())
        shown.append(repr(threading.enumerate()))

    with capture_log_events() as logged:
        with_brokers(1, tmp_path / "broker", certificates, coordinator.address, scenario, more)
    coordinator.stop()
    assert len(logged) > 50
    assert sum("user_name" in text or "authentication of" in text for text in logged) > 0
    # Wrong passwords and rejected values are secrets as well, because many are nearly correct.
    assert [(text[:300], names) for text in logged if (names := secrets_in(text, secrets))] == []
    assert [(text[:300], names) for text in shown if (names := secrets_in(text, secrets))] == []
    for path in (*files_below(tmp_path / "broker"), *files_below(coordinator.directory)):
        data = path.read_bytes()
        found = {name for name, secret in secrets.items() if secret.encode() in data}
        assert found <= {"unknown setting"}, path  # stored as in Kafka, since another version may know it
        assert salted not in data, path


def send_by_protocol(port: int, salted: bytes) -> list[str]:
    """Send requests with secrets; return the responses."""
    admin = Connection(port)
    assert admin.authenticate("admin", PASSWORDS["admin"]) == 0
    row = {"name": "carol", "mechanism": 2, "iterations": 4096, "salt": SALT, "salted_password": salted}
    weak = {**row, "name": "dave", "iterations": 1}
    change = {"name": "listener.name.local.plain.sasl.jaas.config", "config_operation": 0}
    wrong = f'{PLAIN_LOGIN} required username="a" password="{PLANTED["rejected setting"]}" unfinished'
    unknown = PLANTED["unknown setting"]
    resource = {"resource_type": BROKER_CONFIGS, "resource_name": "1"}
    shown = []
    for api, version, body in (
        (ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [row, weak]}),
        (INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": [{**change, "value": wrong}]}]}),
        (
            INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [{**resource, "configs": [{**change, "name": "x.password", "value": unknown}]}]},
        ),
        (
            INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [{**resource, "configs": [{**change, "name": "log.retention.ms", "value": wrong}]}]},
        ),
        (
            DESCRIBE_CONFIGS,
            4,
            {"resources": [{**resource, "configuration_keys": None}], "include_synonyms": True},
        ),
    ):
        response = admin.request(api, version, body)
        if api is INCREMENTAL_ALTER_CONFIGS:  # the error contains the value that the client has sent
            for each in response["responses"]:
                each["error_message"] = (each["error_message"] or "").replace(PLANTED["rejected setting"], "")
        shown.append(repr(response))
    created = admin.request(CREATE_DELEGATION_TOKEN, 2, {"max_lifetime_ms": -1})
    assert created["error_code"] == 0
    admin.close()
    return shown


def send_by_rest(url: str) -> list[str]:
    """Send requests with correct and wrong secrets to the admin API; return the responses."""
    shown: list[str] = []
    super_user = Client(url, token=PLANTED["admin token"])
    for name, response in super_user.send_all().items():
        shown.append(f"{name} {response.text} {response.headers}")
    for client in (
        Client(url, "bob", PLANTED["wrong password"]),
        Client(url, token=PLANTED["wrong token"]),
        Client(url, "bob"),
    ):
        for path in ("/v1/topics", "/metrics", "/v1/configs/brokers/1", "/absent"):
            response = client.send("GET", path)
            shown.append(f"{response.text} {response.headers}")
    for body in (
        {"user": "bob", "password": PLANTED["wrong session password"]},
        {"user": "bob", "password": [PLANTED["wrong session password"]]},
        {"token": PLANTED["wrong token"], "user": 1},
    ):
        response = Client(url).send("POST", "/v1/session", body)
        shown.append(f"{response.text} {response.headers}")
    response = super_user.send("PUT", "/v1/users/erin", {"password": PLANTED["SCRAM password"]})
    assert response.status_code in (200, 201), response.text
    shown.append(response.text)
    rejected = {"set": {"sasl.jaas.config": PLANTED["rejected setting"], "ssl.key.password": 1}}
    shown.append(super_user.send("PATCH", "/v1/configs/brokers/1", rejected).text)
    return shown


def test_files_of_a_secured_cluster(tmp_path: Path) -> None:
    """All files are accessible only to their owner; the output and all other files contain no generated secrets."""
    directory = tmp_path / "cluster"
    twistd = Path(sys.executable).with_name("twistd")
    options = ["--secured", "--port", "0", "--admin-port", "0", "--zookeeper-port", "0", "--data-dir", str(directory)]
    command = [str(twistd), "-n", "--pidfile=", "kreplica", "standalone", *options]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Topics are created" in line:
            break
    (url,) = (match[1] for line in lines if (match := re.search(r"(https://\S+?)/ ", line)))
    security = directory / "security"
    admin = Client(url, token=(security / "admin-token").read_text().strip())
    admin.verify = str(security / "ca.pem")
    assert admin.send("PUT", "/v1/users/erin", {"password": PLANTED["SCRAM password"]}).ok
    assert admin.send("POST", "/v1/topics", {"name": "orders"}).ok
    process.terminate()
    output = "".join(lines) + process.communicate(timeout=60)[0]
    secrets = {"SCRAM password": PLANTED["SCRAM password"]}
    for path in files_below(security):
        text = path.read_text()
        if path.suffix in (".key", ".pem"):
            for at, block in enumerate(re.findall(r"PRIVATE KEY-----(.*?)-----END", text, re.S)):
                secrets[f"{path.name} {at}"] = block.strip().splitlines()[1][:40]
        elif path.suffix != ".properties":
            secrets[path.name] = text.strip()
    assert len(secrets) >= 7, list(secrets)
    assert secrets_in(output, secrets) == []
    for path in directory.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        if path.is_file() and path.parent != security:
            assert secrets_in(path.read_bytes().decode("latin-1"), secrets) == [], path
    for path in tmp_path.iterdir():
        assert path == directory, "the cluster wrote elsewhere"
