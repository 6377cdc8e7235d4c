"""The admin API for callers without credentials: generated requests to all routes, headers, browser sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from sasl_scene import Brokers, with_brokers
from schemathesis import GenerationMode
from test_security_admin_api import BODIES, IN_PATH, TOKEN, Client, rule_of
from twisted.internet.threads import deferToThread

from kreplica.client import Admin
from tests.support.coordinator import CoordinatorProcess

EXAMPLES = 5
TIMEOUT_S = 20
SECRET_TOPIC = "unannounced-product"
STRANGE_PATHS = ("/v1", "/absent", "/v1/../v1/topics", "/metrics", "//v1/topics", "/dashboard/../v1/topics")
MALFORMED_REQUEST_CODES = (400, 413, 414, 431)
"""Status codes for requests that are not valid HTTP or too long."""

EVIL = "evil.example.org"


@pytest.fixture
def admin_settings(tmp_path: Path) -> str:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    return f"""authorizer.class.name=kafka.security.authorizer.AclAuthorizer
        super.users=User:admin
        kreplica.admin.listener=127.0.0.1:0
        kreplica.admin.authentication=basic
        kreplica.admin.token.file={token}
    """


def check_headers(response: requests.Response, *, may_be_cached: bool) -> None:
    """Check the headers of any response."""
    policy = response.headers.get("content-security-policy")
    assert policy is not None, (response.status_code, response.request.method, response.url, response.request.headers)
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in response.headers
    assert not any(character.isdigit() for character in response.headers.get("server", "")), "a version is shown"
    if not may_be_cached:
        assert response.headers["cache-control"] == "no-store", response.url
    assert SECRET_TOPIC not in response.text
    assert "Traceback" not in response.text


def check_rejected(response: requests.Response) -> None:
    """Check the response to a request without valid credentials."""
    if response.status_code in MALFORMED_REQUEST_CODES and "content-security-policy" not in response.headers:
        assert SECRET_TOPIC not in response.text  # rejected before any route has received it
        return
    check_headers(response, may_be_cached=False)
    assert response.status_code in (401, 403, 429), (response.status_code, response.request.url, response.text)
    assert "set-cookie" not in response.headers
    assert response.status_code != 401 or "www-authenticate" in response.headers


def generated_requests(url: str) -> int:
    """Send generated requests without credentials to each operation in the OpenAPI document; return their number."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    document = requests.get(f"{url}/openapi.json", headers=headers, timeout=TIMEOUT_S).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    count = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        rule = rule_of(f"{operation.method.upper()} {operation.path}")
        if rule.public:
            continue
        for mode in GenerationMode:
            count += _send_all(operation, mode)
    return count


def _send_all(operation: Any, mode: GenerationMode) -> int:
    count = 0
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Unsatisfiable:
        return 0

    @given(case=cases)
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        nonlocal count
        case.headers.pop("Authorization", None)
        with requests.Session() as session:
            session.trust_env = False
            response = case.call(session=session, timeout=TIMEOUT_S, headers={"Authorization": ""})
            count += 1
            if response.status_code != 421:  # a generated Host header
                check_rejected(_plain(response))

    try:
        send()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "an operation without parameters has no invalid request"
    return count


def _plain(response: Any) -> requests.Response:
    """Return the ``requests`` response for a schemathesis response."""
    made = requests.Response()
    made.status_code, made._content, made.url = response.status_code, response.content, str(response.request.url)
    made.headers.update({name: values[0] for name, values in response.headers.items()})
    made.request = response.request
    return made


@given(
    value=strategies.one_of(
        strategies.text(strategies.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=60),
        strategies.sampled_from(["Bearer", "Bearer x", "Basic", "Basic Og==", "Basic !", "Digest x", "Negotiate x"]),
        strategies.text(max_size=20).map(lambda text: "Bearer " + text.encode().hex()),
    )
)
@settings(max_examples=60, derandomize=True, database=None, phases=[Phase.generate])
def _with_wrong_credentials(url: str, value: str) -> None:
    headers: dict[str, str | bytes] = {"authorization": value.strip().encode("latin-1")}
    check_rejected(requests.get(f"{url}/v1/topics", headers=headers, timeout=TIMEOUT_S))


def test_callers_without_credentials(
    tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str, logged: list[str]
) -> None:
    """Each generated request is rejected before its parameters are validated; no response reveals anything."""

    async def scenario(scene: Brokers) -> None:
        async with scene.cluster("SASL_SSL", "PLAIN", "admin") as cluster:
            await Admin(cluster).create_topic(SECRET_TOPIC, 1, 1)
        url = scene.brokers[0].admin.url

        def send_requests() -> None:
            assert generated_requests(url) > 200
            for path in ("/", "/dashboard/app.js", "/health/live", "/health/ready"):
                public = requests.get(url + path, timeout=TIMEOUT_S)
                assert public.status_code == 200, path
                check_headers(public, may_be_cached=True)
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
                for path in STRANGE_PATHS:
                    request = requests.Request(method, url + path).prepare()
                    request.url = url + path  # without normalization
                    with requests.Session() as session:
                        response = session.send(request, timeout=TIMEOUT_S)
                    assert response.status_code in (400, 401, 403, 404, 405, 501), (method, path)
                    assert SECRET_TOPIC not in response.text
            _with_wrong_credentials(url)

        await deferToThread(send_requests)
        assert not [text for text in logged if "Traceback" in text]

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)


def test_browsers(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess, admin_settings: str) -> None:
    """No response with data is cacheable; a session alone changes nothing; other sites and names are rejected."""

    async def scenario(scene: Brokers) -> None:
        await scene.create_user("bob")
        url = scene.brokers[0].admin.url

        def send_requests() -> None:
            for name, response in Client(url, token=TOKEN).send_all().items():
                check_headers(response, may_be_cached=rule_of(name).public)
            browser = Client(url)
            body = {"token": TOKEN}
            assert browser.send("POST", "/v1/session", body).status_code == 201
            writes = 0
            for name, response in browser.send_all(with_reads=False).items():
                method, _, path = name.partition(" ")
                if name == "POST /v1/session":
                    continue
                assert response.status_code == 403, (name, response.text)
                writes += 1
                header = {"X-Kreplica-Dashboard": "1"}
                target = path.format(**IN_PATH)
                for headers in ({"Origin": f"http://{EVIL}"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
                    foreign = browser.send(method, target, BODIES.get(name), {**header, **headers}, dry_run="true")
                    assert foreign.status_code == 403, (name, headers, foreign.text)
            assert writes > 10
            rebound = browser.send("GET", "/v1/topics", headers={"Host": f"{EVIL}:80"})
            assert (rebound.status_code, "topics" in rebound.json()) == (421, False)

        await deferToThread(send_requests)

    with_brokers(1, tmp_path, certificates, coordinator.address, scenario, admin_settings)


