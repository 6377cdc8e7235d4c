"""Authentication and authorization of callers of the admin API."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
from http_in_memory import Api, Resource, SynchronousOffload, disconnect, parse_response, request
from twisted.internet.defer import Deferred

from kreplica.admin.http.access import Access
from kreplica.admin.http.api import EventStream, JsonResponse, Route, ServerEvent
from kreplica.admin.http.callers import Caller, topic
from kreplica.admin.security import failures, passwords, sessions
from kreplica.admin.security.failures import FailureLimit
from kreplica.admin.security.guard import Guard
from kreplica.admin.security.passwords import PasswordVerifier
from kreplica.admin.security.sessions import Login, Sessions
from kreplica.errors import SettingsError
from kreplica.interfaces.authorization import CLUSTER, Operation
from kreplica.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from kreplica.service.admin.access import admin_access
from kreplica.settings.broker_settings import BrokerSettings

TOKEN = "0123456789abcdef"
PASSWORD = "planted-secret-1"


class Users:
    """SCRAM credentials by user."""

    def __init__(self, **users):
        self.users = users

    def mechanisms_of(self, user):
        return self.users.get(user, {})


def credential(password=PASSWORD, mechanism=SCRAM_SHA_512, salt=b"a salt"):
    return {mechanism: ScramCredential.of_password(mechanism, password, salt, 4096)}


class FixedAuthorizer:
    """An authorizer with fixed permissions, which records the principals that it is asked about."""

    def __init__(self, *allowed):
        self.allowed = set(allowed)
        self.principals = []

    def permits(self, principal, operation, resource):
        self.principals.append(principal)
        return (principal.user, operation, resource) in self.allowed


class CountingOffload(SynchronousOffload):
    """An ``Offload`` that counts calls."""

    calls = 0

    def run(self, function, *args, **kwargs):
        self.calls += 1
        return super().run(function, *args, **kwargs)


class Scene:
    """An API with all authentication methods; ``GET /v1/cluster`` returns the caller."""

    def __init__(self, authorizer=None, offload=None, user_of=None):
        self.now_s = 100.0
        self.users = Users(alice=credential())
        self.offload = offload or CountingOffload()
        verifier = PasswordVerifier(self.users, self.offload, lambda: self.now_s)
        self.sessions = Sessions(
            "kreplica-session-1",
            lambda: self.now_s,
            lambda: 0,
            60.0,
            is_secure=True,
            credentials_of=verifier.credentials_of,
        )
        self.guard = Guard(
            token=TOKEN.encode(),
            limit=FailureLimit(lambda: self.now_s),
            passwords=verifier,
            user_of_certificate=user_of,
            sessions=self.sessions,
            authorizer=authorizer,
        )
        self.callers = []
        self.events = Deferred()
        routes = (
            Route("GET", "/v1/cluster", self.answer, "x"),
            Route("POST", "/v1/elections", self.answer, "x", body={"type": "object"}),
            Route("GET", "/v1/topics/{topic}/messages/tail", self.stream, "x", streams=True),
            Route("GET", "/v1/without-a-rule", self.answer, "x"),
        )
        self.api = Api(Resource(*routes), access=Access(hosts=None), guard=self.guard)

    async def answer(self, call):
        self.callers.append(call.caller)
        return JsonResponse({"user": call.caller.user, "host": call.caller.host})

    async def stream(self, call):
        async def events():
            yield ServerEvent("one", 1)
            await self.events
            yield ServerEvent("two", 2)

        return EventStream(events())

    def get(self, path="/v1/cluster", **headers):
        return self.api.ask("GET", path, {name.replace("_", "-"): value for name, value in headers.items()})


def basic(user="alice", password=PASSWORD):
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def test_token_makes_a_super_user():
    scene = Scene(FixedAuthorizer())
    answer = scene.get(Authorization=f"Bearer {TOKEN}")
    assert (answer.status, scene.callers[0].is_super) == (200, True)
    assert scene.get("/v1/without-a-rule", Authorization=f"Bearer {TOKEN}").status == 200


def test_password_of_a_user():
    """A password is verified once, in a thread, and cached for a minute."""
    scene = Scene()
    assert scene.get(Authorization=basic()).json() == {"user": "User:alice", "host": "192.168.1.1"}
    assert not scene.callers[0].is_super
    scene.get(Authorization=basic())
    assert scene.offload.calls == 1
    scene.now_s += passwords.REMEMBERED_S
    assert scene.get(Authorization=basic()).status == 200
    assert scene.offload.calls == 2


@pytest.mark.parametrize(
    "given",
    [
        None,
        basic(password="wrong"),
        basic(password=""),
        basic(user="bob"),
        basic(user="", password=""),
        basic(user="x" * 2000),
        "Basic !",
        "Basic " + b64encode(b"alice").decode(),
        "Basic " + b64encode(b"\xff:\xff").decode(),
        "Basic",
        "Digest x",
        "Bearer " + PASSWORD,
    ],
)
def test_wrong_credentials(given):
    """The response to wrong credentials names the authentication methods, and repeats no part of the credentials."""
    answer = Scene().get(Authorization=given)
    assert (answer.status, answer.json()["title"]) == (401, "UNAUTHORIZED")
    assert answer.json()["accepts"] == ["token", "basic"]
    assert answer.headers["www-authenticate"].startswith(("Bearer", "Basic"))
    assert PASSWORD not in answer.body.decode()
    assert TOKEN not in answer.body.decode()


def test_unknown_user_takes_as_long_as_a_wrong_password():
    scene = Scene()
    scene.get(Authorization=basic(user="nobody"))
    assert scene.offload.calls == 1


def test_unknown_user_with_the_password_of_another():
    """An unknown user gets no access with the password of the user whose credentials equalize the response time."""
    scene = Scene()
    assert scene.get(Authorization=basic(user="nobody")).status == 401
    scene.users.users.clear()
    assert scene.get(Authorization=basic(user="nobody")).status == 401
    assert scene.offload.calls == 2


def test_browser_shows_no_password_dialog():
    """A response to the dashboard has no challenge that would open the browser's own password dialog."""
    _, wire = Scene().api.begin("GET", "/v1/cluster", {"Sec-Fetch-Mode": "cors"})
    assert b"Basic realm" not in wire.value()
    _, wire = Scene().api.begin("GET", "/v1/cluster")
    assert b"Basic realm" in wire.value()


def test_changed_password():
    """A cached password is refused once the user's credentials change or are deleted."""
    scene = Scene()
    assert scene.get(Authorization=basic()).status == 200
    scene.users.users["alice"] = credential("another", SCRAM_SHA_256)
    assert scene.get(Authorization=basic()).status == 401
    assert scene.get(Authorization=basic(password="another")).status == 200
    del scene.users.users["alice"]
    assert scene.get(Authorization=basic(password="another")).status == 401


def test_password_that_changes_while_it_is_verified():
    class Waiting(SynchronousOffload):
        waiting = None

        def run(self, function, *args):
            self.waiting = Deferred().addCallback(lambda _: function(*args))
            return self.waiting

    offload = Waiting()
    scene = Scene(offload=offload)
    _, wire = scene.api.begin("GET", "/v1/cluster", {"Authorization": basic()})
    scene.users.users["alice"] = credential("another")
    offload.waiting.callback(None)
    assert parse_response(wire.value()).status == 401


@pytest.mark.parametrize(
    "name", ["Authorization", "Host", "Origin", "If-Match", "Content-Type", "Sec-Fetch-Site", "X-Kreplica-Forwarded"]
)
def test_header_that_is_not_text(name):
    """A header that is not UTF-8 gets a 400, not an internal error."""
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Kreplica-Forwarded": "1", name: "Basic \xff"}
    for method, path, body in (("GET", "/v1/cluster", None), ("POST", "/v1/elections", {})):
        answer = Scene().api.ask(method, path, headers, body)
        assert (answer.status, answer.json()["detail"]) == (400, f"the header {name} is not UTF-8")


def test_failures_are_limited_by_address(monkeypatch):
    """After too many failures, an address is refused for a minute, except with the token; others are not affected."""
    monkeypatch.setattr(failures, "FAILURES_MAX", 3)
    scene = Scene()
    for _ in range(3):
        assert scene.get(Authorization=basic(password="wrong")).status == 401
    refused = scene.get(Authorization=basic())
    assert (refused.status, refused.json()["title"]) == (429, "TOO_MANY_REQUESTS")
    assert scene.get(Authorization=f"Bearer {TOKEN}").status == 200
    protocol, wire = scene.api.connect("192.168.1.2")
    protocol.dataReceived(request("GET", "/v1/cluster", {"Authorization": basic()}))
    assert parse_response(wire.value()).status == 200
    scene.now_s += failures.WINDOW_S
    assert scene.get(Authorization=basic()).status == 200


def test_pending_verifications_are_limited(monkeypatch):
    monkeypatch.setattr(passwords, "PENDING_MAX", 2)

    waiting = []

    class Never(SynchronousOffload):
        def run(self, function, *args):
            waiting.append(Deferred())
            return waiting[-1]

    scene = Scene(offload=Never())
    started = [scene.api.begin("GET", "/v1/cluster", {"Authorization": basic()}) for _ in range(2)]
    assert scene.get(Authorization=basic()).status == 503
    for protocol, _ in started:
        disconnect(protocol)
    assert not scene.callers


def test_failures_are_logged_without_secrets(monkeypatch):
    lines = []
    monkeypatch.setattr(failures.log, "warn", lambda text, **more: lines.append(text.format(**more)))
    scene = Scene()
    scene.get(Authorization=basic(user=PASSWORD, password=PASSWORD))
    assert lines == ["admin API: authentication from 192.168.1.1 failed (1)"]


def test_writes_are_logged_with_their_user():
    """The access log names the user and contains no secret."""
    lines = []
    scene = Scene()
    scene.api.site._site._logDateTime = ""
    scene.api.site._site.logFile = type("File", (), {"write": staticmethod(lines.append)})
    scene.api.ask("POST", "/v1/elections", {"Authorization": basic()}, {})
    (line,) = lines
    assert " - User:alice [" in str(line)
    assert PASSWORD not in str(line)


def test_disconnect_does_not_evade_the_limits(monkeypatch):
    """A verification counts against the limits even if its client has disconnected."""
    monkeypatch.setattr(passwords, "PENDING_MAX", 2)
    started = []

    class Slow(SynchronousOffload):
        def run(self, function, *args):
            started.append(Deferred().addCallback(lambda _: function(*args)))
            return started[-1]

    lines = []
    monkeypatch.setattr(failures.log, "warn", lambda text, **more: lines.append(text))
    scene = Scene(offload=Slow())
    for _ in range(2):
        disconnect(scene.api.begin("GET", "/v1/cluster", {"Authorization": basic(password="wrong")})[0])
    assert scene.get(Authorization=basic()).status == 503
    for waiting in started:
        waiting.callback(None)
    assert len(lines) == 2
    assert not scene.callers


def test_concurrent_verifications_are_limited():
    """Only a few verifications run at once, so that they do not occupy all threads; others wait."""
    started = []

    class Slow(SynchronousOffload):
        def run(self, function, *args):
            started.append(Deferred().addCallback(lambda _: function(*args)))
            return started[-1]

    scene = Scene(offload=Slow())
    wires = [scene.api.begin("GET", "/v1/cluster", {"Authorization": basic()})[1] for _ in range(3)]
    assert len(started) == passwords.THREADS_MAX
    started[0].callback(None)
    assert len(started) == passwords.THREADS_MAX + 1
    for waiting in started[1:]:
        waiting.callback(None)
    assert [parse_response(wire.value()).status for wire in wires] == [200, 200, 200]


# --- forwarded requests ----------------------------------------------------------------------------------------------


def test_broker_acts_for_a_user():
    """A request forwarded with the token has the permissions of the user and the client address that it names."""
    scene = Scene(FixedAuthorizer(("User:é,", Operation.DESCRIBE, CLUSTER)))
    headers = {"Authorization": f"Bearer {TOKEN}", "X_Kreplica_Forwarded": "1", "X_Kreplica_Principal_Host": "10.0.0.9"}
    answer = scene.get(X_Kreplica_Principal="User%3A%C3%A9%2C", **headers)
    assert answer.json() == {"user": "User:é,", "host": "10.0.0.9"}
    assert not scene.callers[0].is_super
    denied = scene.get(X_Kreplica_Principal="User:bob", **headers)
    assert (denied.status, denied.json()["principal"]) == (403, "User:bob")


def test_users_cannot_act_for_others():
    """Only brokers, which have the token, can act for another user."""
    scene = Scene(FixedAuthorizer(("User:admin", Operation.DESCRIBE, CLUSTER)))
    answer = scene.get(Authorization=basic(), X_Kreplica_Forwarded="1", X_Kreplica_Principal="User:admin")
    assert (answer.status, answer.json()["principal"]) == (403, "User:alice")


# --- sessions --------------------------------------------------------------------------------------------------------


def cookie_of(set_cookie):
    return set_cookie.partition(";")[0]


def test_session():
    """A session has the user's rights until it ends; scripts and other sites cannot use its cookie."""
    scene = Scene()
    _, set_cookie = scene.sessions.open(Login("User:alice", name="alice"))
    assert set_cookie.endswith("; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure")
    cookie = cookie_of(set_cookie)
    assert scene.get(Cookie=cookie).json()["user"] == "User:alice"
    assert scene.get(Cookie=cookie[:-1]).status == 401
    assert scene.get(Cookie="kreplica-session-1=").status == 401
    scene.now_s += 60
    assert scene.get(Cookie=cookie).status == 401


def test_session_ends_when_the_password_changes():
    scene = Scene()
    cookie = cookie_of(scene.sessions.open(Login("User:alice", name="alice"))[1])
    scene.users.users["alice"] = credential("another")
    assert scene.get(Cookie=cookie).status == 401


def test_writes_with_a_session_need_the_dashboard_header():
    """Another site cannot write with the cookie: it cannot send the header, and has another origin."""
    scene = Scene()
    cookie = cookie_of(scene.sessions.open(Login("User:alice", name="alice"))[1])

    def write(**headers):
        given = {"Cookie": cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return scene.api.ask("POST", "/v1/elections", given, {}).status

    assert write() == 403
    assert write(X_Kreplica_Dashboard="1") == 200
    assert write(X_Kreplica_Dashboard="1", Origin="http://evil.example") == 403
    assert write(X_Kreplica_Dashboard="1", Sec_Fetch_Site="cross-site") == 403


def test_sessions_are_limited(monkeypatch):
    """Beyond a limit per user the user's oldest session ends; beyond the total limit the oldest of all ends."""
    monkeypatch.setattr(sessions, "USER_SESSIONS_MAX", 2)
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    scene = Scene()

    def open_session(user):
        return cookie_of(scene.sessions.open(Login(user))[1])

    first = [open_session("User:alice") for _ in range(3)]
    assert [scene.get(Cookie=each).status for each in first] == [401, 200, 200]
    others = [open_session("User:bob"), open_session("User:carol")]
    assert [scene.get(Cookie=each).status for each in [*first, *others]] == [401, 401, 200, 200, 200]


# --- permissions -----------------------------------------------------------------------------------------------------


def test_denial_names_the_principal_the_operation_and_the_resource():
    scene = Scene(FixedAuthorizer())
    answer = scene.api.ask("POST", "/v1/elections", {"Authorization": basic()}, {}).json()
    assert (answer["status"], answer["title"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")
    assert answer["detail"] == "User:alice from 192.168.1.1 is not authorized for alter on the cluster"
    assert (answer["principal"], answer["operation"], answer["resource_type"], answer["resource_name"]) == (
        "User:alice",
        "alter",
        "cluster",
        "kafka-cluster",
    )
    assert scene.guard.schemes == ["token", "basic", "session"]


def test_route_without_a_rule_is_refused():
    assert Scene(FixedAuthorizer()).get("/v1/without-a-rule", Authorization=basic()).status == 403


def test_anonymous_callers_are_authorized_as_well():
    """Without authentication, the authorizer is asked about User:ANONYMOUS."""
    permitted = FixedAuthorizer(("User:ANONYMOUS", Operation.DESCRIBE, CLUSTER))
    api = Api(*[Resource(Route("GET", "/v1/cluster", Scene().answer, "x"))], guard=Guard(authorizer=permitted))
    assert api.ask("GET", "/v1/cluster").status == 200
    permitted.allowed.clear()
    assert api.ask("GET", "/v1/cluster").status == 403
    assert permitted.principals[0]._asdict() == {
        "user": "User:ANONYMOUS", "host": "192.168.1.1", "listener": "admin", "client_id": None,
    }  # fmt: skip


def test_stream_ends_when_the_permission_is_lost():
    permitted = FixedAuthorizer(("User:alice", Operation.READ, topic("orders")))
    scene = Scene(permitted)
    _, wire = scene.api.begin("GET", "/v1/topics/orders/messages/tail", {"Authorization": basic()})
    assert b"event: one" in wire.value()
    permitted.allowed.clear()
    scene.events.callback(None)
    assert b"event: two" not in wire.value()


def test_secrets_are_not_shown():
    scene = Scene()
    session, _ = scene.sessions.open(Login("User:alice", name="alice"))
    assert "stored_key" not in repr(session)
    assert "b'key'" not in repr(Caller(session=b"key"))


# --- certificates ----------------------------------------------------------------------------------------------------


def test_client_certificate():
    """Rules map the certificate's subject to a user; a certificate that matches no rule is refused."""
    users = {"cert-a": "alice", "cert-x": None}
    scene = Scene(user_of=users.get)
    for certificate, expected in (("cert-a", 200), ("cert-x", 401), (None, 401)):
        protocol, wire = scene.api.connect()
        wire.getPeerCertificate = lambda certificate=certificate: certificate
        protocol.dataReceived(request("GET", "/v1/cluster"))
        answer = parse_response(wire.value())
        assert answer.status == expected
        if expected == 200:
            assert answer.json()["user"] == "User:alice"
        else:
            assert "certificate" in json.dumps(answer.json())


# --- settings --------------------------------------------------------------------------------------------------------

BASE = "broker.id=1\nzookeeper.connect=127.0.0.1:2181\nadvertised.listeners=PLAINTEXT://kafka.example:9092\n"


def settings(**given):
    lines = "".join(f"kreplica.admin.{name.replace('_', '.')}={value}\n" for name, value in given.items())
    return BrokerSettings.from_text(BASE + lines, (), origin="test")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"authentication": "basic"}, "set a token file"),
        ({"authentication": "token"}, "set a token file"),
        ({"authentication": "none,basic", "token_file": "/t"}, "none cannot be combined"),
        ({"authentication": "none", "token_file": "/t"}, "none cannot be combined"),
        ({"authentication": "certificate", "token_file": "/t"}, "certificate authorities"),
        ({"authentication": "kerberos"}, "expected"),
        ({"listener": "0.0.0.0:1", "authentication": "none"}, "do not protect"),
        ({"listener": "0.0.0.0:1"}, "do not protect"),
    ],
)
def test_inconsistent_settings(given, error):
    with pytest.raises(SettingsError, match=error):
        settings(**given)


def test_anonymous_access_from_other_machines_needs_a_setting():
    assert settings(listener="0.0.0.0:8080", allow_anonymous="true")["kreplica.admin.allow.anonymous"]


def test_hosts():
    """IP addresses, and host names of the listener, of advertised listeners and of the setting, are accepted."""
    access = admin_access(settings(listener="0.0.0.0:8080", allow_anonymous="true", hosts="Proxy.example"), "0.0.0.0")
    assert {"localhost", "kafka.example", "proxy.example"} < set(access.hosts)
    api = Api(Resource(Route("GET", "/v1/things", Scene().answer, "x")), access=access)
    for host, expected in (("kafka.example:8080", 200), ("10.1.2.3:8080", 200), ("[fe80::1]", 200), ("evil.com", 421)):
        assert api.ask("GET", "/v1/things", {"Host": host}).status == expected
    assert not admin_access(settings(listener="127.0.0.1:8080"), "127.0.0.1").accepts_addresses
