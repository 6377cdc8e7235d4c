"""Requests that are forwarded to other brokers' admin listeners: results and errors."""

from __future__ import annotations

import json
import ssl
from dataclasses import replace
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest
from test_admin_access import TOKEN, certificate
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from kreplica.admin.http.api import Call
from kreplica.admin.http.callers import Caller
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.site import AdminSite
from kreplica.admin.peers import forwarding
from kreplica.admin.peers.addresses import peer_url
from kreplica.admin.peers.forwarding import Forwarding
from kreplica.admin.peers.registrations import REUSE_SECONDS, WAIT_SECONDS_MAX, RegistrationReader
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.cluster import documents, znodes
from kreplica.model import BrokerRegistration, Endpoint
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import ConnectionLoss, OperationTimeout, Stat
from tests.support.standalone import StandaloneProcess

PORT = 8080
ANYTHING = PeerResponseValidator({})


class Listener(Resource):
    """An admin listener that records requests and always sends the same response."""

    isLeaf = True

    def __init__(self, document, *, status=200, never=False, location=None):
        super().__init__()
        self.requests = []
        self.principals = []
        self._location = location
        self._document, self._status, self._never = document, status, never

    def render(self, request):
        headers = {name: request.getHeader(name) for name in ("authorization", "x-kreplica-forwarded", "content-type")}
        self.principals.append(
            (request.getHeader("x-kreplica-principal"), request.getHeader("x-kreplica-principal-host"))
        )
        self.requests.append((request.method.decode(), request.uri.decode(), headers, request.content.read()))
        if self._never:
            return NOT_DONE_YET
        request.setResponseCode(self._status)
        if self._location is not None:
            request.setHeader("location", self._location)
        return self._document if isinstance(self._document, bytes) else json.dumps(self._document).encode()


def listener(number):
    return Endpoint("PLAINTEXT", f"broker-{number}", 9092)


class FixedRegistrations:
    def __init__(self, registrations):
        self._registrations = registrations

    async def live(self):
        return self._registrations


class World:
    """Three brokers in virtual time; broker 1 sends the requests."""

    def __init__(self):
        self.simulation = Simulation(seed=1)
        self.hosts = {number: self.simulation.host(f"broker-{number}") for number in (1, 2, 3)}
        self.registrations = {
            number: BrokerRegistration(number, (listener(number),), admin_url=f"http://broker-{number}:{PORT}")
            for number in (1, 2, 3)
        }
        reactor = self.hosts[1].reactor
        self.forwarding = Forwarding(reactor, self.hosts[1].offload, 1, FixedRegistrations(self.registrations))

    def serve(self, number, document, **more):
        listener = Listener(document, **more)
        reactor = self.hosts[number].reactor
        reactor.listenTCP(PORT, Site(listener, reactor=reactor))
        return listener

    def result(self, coroutine):
        return self.simulation.run_until(Deferred.fromCoroutine(coroutine), 60)

    def problem(self, coroutine):
        with pytest.raises(Problem) as raised:
            self.result(coroutine)
        return raised.value


@pytest.fixture
def world():
    return World()


def test_request_is_forwarded_for_the_caller(world):
    """The other broker gets the caller's path and parameters, and a header that marks the request as forwarded."""
    listener = world.serve(2, {"state": "led"})
    call = Call()
    query = {"limit": 5, "after": None, "name": "é&b", "internal": True}
    assert world.result(world.forwarding.request(2, call, "/v1/why/a%2Fb", ANYTHING, query=query)) == {"state": "led"}
    headers = {"authorization": None, "x-kreplica-forwarded": "1", "content-type": None}
    assert listener.requests == [("GET", "/v1/why/a%2Fb?limit=5&name=%C3%A9%26b&internal=true", headers, b"")]


SECRET = Call(authorization="Bearer secret")


@pytest.mark.parametrize("url", ["http://broker-3:8080", "https://broker-3:8080", "http://2130706433:8080"])
def test_registration_cannot_redirect_requests_to_another_host(world, url):
    """A forged registration gets neither the caller's token nor the request."""
    listener = world.serve(3, {})
    world.registrations[2] = replace(world.registrations[2], admin_url=url)
    for call in (SECRET, Call()):
        problem = world.problem(world.forwarding.request(2, call, "/v1/x", ANYTHING))
        assert (problem.status, problem.title) == (502, "untrusted admin listener")
        assert "but none of its listeners has this host (PLAINTEXT://broker-2:9092)" in problem.detail
        assert "/brokers/ids/2" in problem.what_to_do
    assert listener.requests == []


@pytest.mark.parametrize(
    "url", ["ftp://broker-2", "http://user@broker-2:1", "http://broker-2:x", "http://[", "", "http://broker-2/?a"]
)
def test_invalid_admin_url_is_refused(world, url):
    """A malformed registration is reported as a problem of its broker, not as an error of this one."""
    world.registrations[2] = replace(world.registrations[2], admin_url=url)
    problem = world.problem(world.forwarding.request(2, SECRET, "/v1/x", ANYTHING))
    assert problem.status == 502
    assert problem.detail.startswith("broker 2 has registered")


def test_token_is_not_sent_in_clear(world):
    """Without TLS, a token is sent only to this machine; a request without a token is sent to any machine."""
    listener = world.serve(2, {})
    problem = world.problem(world.forwarding.request(2, SECRET, "/v1/x", ANYTHING))
    assert (problem.status, problem.title) == (502, "untrusted admin listener")
    assert "sent unencrypted" in problem.detail
    assert "kreplica.admin.tls.certificate.file" in problem.what_to_do
    assert listener.requests == []
    assert world.result(world.forwarding.request(2, Call(), "/v1/x", ANYTHING)) == {}


def test_brokers_authenticate_with_the_token_and_name_the_caller(world, monkeypatch):
    """The caller's own credentials are not forwarded; only a caller with the token acts as a super user."""
    listener = world.serve(2, {})
    checked = []

    def accepted(registration, url, *, with_token):
        checked.append(with_token)
        return url

    monkeypatch.setattr(forwarding, "peer_url", accepted)
    host = world.hosts[1]
    brokers = Forwarding(host.reactor, host.offload, 1, FixedRegistrations(world.registrations), token=b"shared")
    alice = Caller("User:é\r\nX: 1", "10.0.0.9", method="basic")
    for caller in (alice, Caller("User:admin-token", "10.0.0.9", is_super=True)):
        call = Call(caller=caller, authorization="Basic secret")
        assert world.result(brokers.request(2, call, "/v1/x", ANYTHING)) == {}
    assert [headers["authorization"] for _, _, headers, _ in listener.requests] == ["Bearer shared", "Bearer shared"]
    assert listener.principals == [("User%3A%C3%A9%0D%0AX%3A%201", "10.0.0.9"), (None, None)]
    assert checked == [True, True]  # the URL is checked as for a request with a secret


def test_token_is_sent_to_brokers_of_this_machine():
    """A token may be sent over TLS, or on loopback under any name of the listener."""
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
    for host in ("127.0.0.1", "localhost", "[::1]"):
        registration = BrokerRegistration(2, (endpoint,), admin_url=f"http://{host}:8080")
        assert peer_url(registration, registration.admin_url, with_token=True) == registration.admin_url
    remote = BrokerRegistration(2, (listener(2),), admin_url="https://broker-2:8080")
    assert peer_url(remote, remote.admin_url, with_token=True) == remote.admin_url


def test_redirect_is_not_followed(world):
    """A redirect is not followed; the problem names the broker that sent it."""
    target = world.serve(3, {})
    world.serve(2, b"", status=307, location=f"http://broker-3:{PORT}/v1/x")
    problem = world.problem(world.forwarding.request(2, Call(), "/v1/x", ANYTHING))
    assert problem.status == 502
    assert target.requests == []


def test_write_is_forwarded_with_its_body(world):
    """A body is forwarded as JSON; a response without a body is None."""
    listener = world.serve(2, b"", status=204)
    nothing = PeerResponseValidator(None)
    deletion = world.forwarding.request(2, Call(), "/v1/x", nothing, method="DELETE", body={"a": 1})
    assert world.result(deletion) is None
    method, _, headers, body = listener.requests[0]
    assert (method, headers["content-type"], json.loads(body)) == ("DELETE", "application/json", {"a": 1})
    assert headers["authorization"] is None


def test_problem_of_another_broker_is_returned(world):
    document = {"title": "GROUP_ID_NOT_FOUND", "status": 404, "detail": "no g", "what_to_do": "look", "instance": "/"}
    world.serve(2, {**document, "group": "g"}, status=404)
    problem = world.problem(world.forwarding.request(2, Call(), "/v1/groups/g", ANYTHING))
    assert problem.document("/here") == {**document, "instance": "/here", "group": "g"}


def test_forwarded_request_is_not_forwarded_again(world):
    """A broker does not forward a request that was forwarded to it, so that two brokers cannot loop."""
    listener = world.serve(2, {})
    assert world.problem(world.forwarding.request(2, Call(forwarded=True), "/v1/x", ANYTHING)).status == 421
    answers = world.result(world.forwarding.request_all(Call(forwarded=True), "/v1/x", ANYTHING, here("mine")))
    assert (answers.documents, list(answers.problems), listener.requests) == ({1: "mine"}, [], [])


def here(document):
    async def answer():
        return document

    return answer


def test_brokers_that_do_not_respond_are_named(world):
    """A dead and a hanging broker do not hide other results, and together delay the response by one timeout."""
    world.serve(2, None, never=True)
    began = world.simulation.scheduler.now_s
    answers = world.result(world.forwarding.request_all(Call(), "/v1/x", ANYTHING, here({"mine": 1})))
    assert answers.documents == {1: {"mine": 1}}
    hangs, dead = answers.problems
    assert hangs == "broker 2: broker 2 did not respond within 5 s"
    assert dead.startswith(f"broker 3: cannot send a request to broker 3 at http://broker-3:{PORT}/v1/x: ")
    assert not dead.endswith("."), "callers add the dot"
    assert world.simulation.scheduler.now_s - began < 2 * forwarding.RESPONSE_SECONDS_MAX


def test_results_are_ordered_by_broker(world):
    world.serve(2, 2)
    world.serve(3, 3)
    answers = world.result(world.forwarding.request_all(Call(), "/v1/x", ANYTHING, here(1)))
    assert (list(answers.documents.items()), list(answers.problems)) == ([(1, 1), (2, 2), (3, 3)], [])


@pytest.mark.parametrize(("document", "status"), [(b"<html>", 200), (b"", 302), (b'"%s"' % (b"x" * 2000), 200)])
def test_invalid_response_names_its_broker(world, monkeypatch, document, status):
    """A malformed, redirected or too large response is a problem that names the broker."""
    monkeypatch.setattr(forwarding, "RESPONSE_BYTES_MAX", 1000)
    world.serve(2, document, status=status)
    problem = world.problem(world.forwarding.request(2, Call(), "/v1/x", ANYTHING))
    assert problem.status == 502
    assert "broker 2" in problem.detail


def test_unreachable_broker_is_named(world):
    """For a missing broker, or one without an admin listener, the problem has advice."""
    world.registrations[2] = BrokerRegistration(2, ())
    del world.registrations[3]
    silent, gone = (world.problem(world.forwarding.request(number, Call(), "/v1/x", ANYTHING)) for number in (2, 3))
    assert (silent.status, silent.detail) == (503, "broker 2 has no admin listener")
    assert "kreplica.admin.listener" in silent.what_to_do
    assert (gone.status, gone.detail) == (503, "broker 3 is not registered in ZooKeeper")


def test_forwarded_requests_are_bounded(world, monkeypatch):
    """While other brokers hang, the number of requests that wait for them is limited."""
    monkeypatch.setattr(forwarding, "IN_FLIGHT_MAX", 2)
    world.serve(2, None, never=True)
    waiting = [Deferred.fromCoroutine(world.forwarding.request(2, Call(), "/v1/x", ANYTHING)) for _ in range(2)]
    assert world.problem(world.forwarding.request(2, Call(), "/v1/x", ANYTHING)).title == "busy"
    for each in waiting:
        each.addErrback(lambda failure: failure.value.status)
        assert world.simulation.run_until(each, 60) == 504


def test_stopping_broker_cancels_forwarded_requests(world):
    """When a broker stops, its forwarded requests fail at once, and no timer remains."""
    world.serve(2, {})
    world.serve(3, None, never=True)
    assert world.result(world.forwarding.request(2, Call(), "/v1/x", ANYTHING)) == {}
    waiting = Deferred.fromCoroutine(world.forwarding.request(3, Call(), "/v1/x", ANYTHING))
    world.simulation.run(1)
    world.result(world.forwarding.close())
    failed = []
    waiting.addErrback(lambda failure: failed.append(failure.value.title))
    assert failed == ["stopping"]
    assert world.problem(world.forwarding.request(2, Call(), "/v1/x", ANYTHING)).title == "busy"
    world.simulation.run(1)
    assert world.hosts[1].reactor.getDelayedCalls() == []


class RegistrationZnodes:
    """A ZooKeeper client with registrations, whose responses the test releases one at a time."""

    def __init__(self):
        self.reads = 0
        self.data = {
            number: documents.encode_broker(BrokerRegistration(number, (), admin_url=f"http://b{number}"))
            for number in (10, 2)
        }
        self.waiting: Deferred | None = None

    def get_children(self, path):
        assert path == znodes.BROKER_IDS
        self.reads += 1
        self.waiting = Deferred()
        return self.waiting.addCallback(lambda _: [*map(str, self.data), "no-number"])

    def multi_read(self, reads):
        stat = Stat(7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7)
        answers = [(self.data[int(read.path.rpartition("/")[2])], stat) for read in reads]
        done: Deferred = Deferred()
        done.callback(answers)
        return done


def test_concurrent_callers_share_one_read_of_the_registrations():
    tree, clock = RegistrationZnodes(), Clock()
    registrations = RegistrationReader(clock, tree)
    first, second = (Deferred.fromCoroutine(registrations.live()) for _ in range(2))
    first.cancel()
    first.addErrback(lambda _: None)
    tree.waiting.callback(None)
    assert [(number, each.admin_url) for number, each in second.result.items()] == [
        (2, "http://b2"),
        (10, "http://b10"),
    ]
    clock.advance(REUSE_SECONDS / 2)
    assert list(Deferred.fromCoroutine(registrations.live()).result) == [2, 10]
    assert tree.reads == 1
    clock.advance(REUSE_SECONDS)
    tree.data[2] = b"no JSON"
    third = Deferred.fromCoroutine(registrations.live())
    tree.waiting.callback(None)
    assert list(third.result) == [10]
    assert tree.reads == 2


def test_failed_read_of_registrations_is_not_cached():
    """If a read of the registrations fails, only the current callers get the error."""
    tree = RegistrationZnodes()
    registrations = RegistrationReader(Clock(), tree)
    lost = Deferred.fromCoroutine(registrations.live())
    tree.waiting.errback(ConnectionLoss("/brokers/ids"))
    failures = []
    lost.addErrback(failures.append)
    assert failures[0].check(ConnectionLoss)
    again = Deferred.fromCoroutine(registrations.live())
    tree.waiting.callback(None)
    assert list(again.result) == [2, 10]


def test_last_known_registrations_while_zookeeper_does_not_respond():
    """Callers get the last known registrations after a second, or at once, with a notice that they are old."""
    tree, clock = RegistrationZnodes(), Clock()
    registrations = RegistrationReader(clock, tree)
    first = Deferred.fromCoroutine(registrations.live())
    tree.waiting.callback(None)
    assert list(first.result) == [2, 10]
    assert registrations.problem is None
    clock.advance(REUSE_SECONDS)
    hanging = Deferred.fromCoroutine(registrations.live())
    clock.advance(WAIT_SECONDS_MAX)
    assert list(hanging.result) == [2, 10]
    assert registrations.problem.startswith("ZooKeeper does not respond")
    clock.advance(1.0)
    assert list(Deferred.fromCoroutine(registrations.live()).result) == [2, 10]
    assert tree.reads == 2
    tree.waiting.errback(ConnectionLoss("/brokers/ids"))
    failing = Deferred.fromCoroutine(registrations.live())
    tree.waiting.errback(ConnectionLoss("/brokers/ids"))
    assert list(failing.result) == [2, 10]
    assert registrations.problem.startswith("ZooKeeper cannot be read")
    again = Deferred.fromCoroutine(registrations.live())
    tree.waiting.callback(None)
    assert list(again.result) == [2, 10]
    assert registrations.problem is None
    assert not clock.getDelayedCalls()


def test_registrations_that_were_never_read_time_out():
    """If registrations were never read, callers wait no longer than with old ones."""
    tree, clock = RegistrationZnodes(), Clock()
    registrations = RegistrationReader(clock, tree)
    hanging = Deferred.fromCoroutine(registrations.live())
    failures = []
    hanging.addErrback(failures.append)
    clock.advance(WAIT_SECONDS_MAX)
    assert failures[0].check(OperationTimeout)
    tree.waiting.callback(None)
    assert list(Deferred.fromCoroutine(registrations.live()).result) == [2, 10]
    assert not clock.getDelayedCalls()


def test_brokers_with_tokens_and_tls(tmp_path):
    """Brokers with a shared certificate and token answer for the whole cluster, but only callers with the token."""
    cert, key = certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    files = {"token.file": token, "tls.certificate.file": cert, "tls.key.file": key}
    arguments = [word for name, value in files.items() for word in ("--override", f"kreplica.admin.{name}={value}")]
    trusted = ssl.create_default_context(cafile=str(cert))
    with StandaloneProcess(tmp_path / "process", brokers=2, arguments=tuple(arguments)) as process:
        url = f"https://127.0.0.1:{process.admin_port}/v1/live-metrics"
        request = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(request, context=trusted) as answer:
            figures = json.load(answer)
    assert [(row["broker_id"], row["live"]) for row in figures["brokers"]] == [(1, True), (2, True)]
    assert figures["problems"] == []


def test_listener_on_all_addresses_is_announced_by_host_name():
    reactor = Simulation(seed=1).host("broker-1").reactor
    for host, announced in (("0.0.0.0", "machine"), ("::", "machine"), ("broker-1", "broker-1")):
        site = AdminSite(reactor, Listener({}), host=host, port=0)
        site._listening = SimpleNamespace(getHost=lambda: SimpleNamespace(port=8080))
        assert site.announced_url("machine") == f"http://{announced}:8080"
