"""Invalid responses from other brokers: the caller gets a problem, never an error 500."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from test_admin_forwarding import World

from kreplica.admin.http.api import Call
from kreplica.admin.http.failures import problem_of
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import COUNT, listing, one_of, record
from kreplica.admin.peers.responses import DEPTH_MAX, PeerResponseValidator
from kreplica.admin.resources.groups import Groups
from kreplica.admin.resources.live_metrics import METRICS, LiveMetricsResource
from kreplica.admin.resources.timeline import Timeline
from kreplica.admin.resources.why import PEER_REMEMBERED
from kreplica.errors import ErrorCode, KafkaError

UNEXPECTED = (
    {},
    [],
    "text",
    7,
    None,
    {"entries": None, "brokers": None, "decided": None, "left_ms": None},
    {"entries": [{}], "brokers": [{}], "decided": [{}], "left_ms": {"abc": 1}, "problems": [], "at_ms": 1},
    {"entries": [[]], "brokers": ["x"], "decided": [1], "left_ms": {"1": "x"}, "problems": [], "at_ms": 1},
    {"entries": [{"id": "x"}], "brokers": [{"broker_id": []}], "decided": [], "left_ms": {"1": None}},
)


@pytest.fixture
def world():
    return World()


def chronicle_of(*entries):
    return SimpleNamespace(newest=lambda: iter(entries))


class Metrics:
    async def live_metrics(self):
        return dict.fromkeys(METRICS, 0)


def read_timeline(world):
    resource = Timeline(world.hosts[1].reactor, 1, chronicle_of(), {"x": "X."}, world.forwarding)
    call = Call(query={"limit": 10, "before": None, "since": None, "kind": None, "subject": None})
    return resource.read(call)


def read_figures(world):
    registrations = SimpleNamespace(live=lambda: _later(world.registrations))
    return LiveMetricsResource(1, lambda: 0, Metrics(), registrations, world.forwarding).read(Call())


async def _later(value):
    return value


@pytest.mark.parametrize("document", UNEXPECTED, ids=repr)
@pytest.mark.parametrize("read", [read_timeline, read_figures])
def test_invalid_response_is_a_problem_of_its_broker(world, read, document):
    """The results of other brokers are returned, with a notice that names the broker whose response is invalid."""
    world.serve(2, document)
    world.serve(3, document)
    answer = world.result(read(world)).document
    assert [problem.partition(":")[0] for problem in answer["problems"]] == ["broker 2", "broker 3"]
    assert all("its response (status 200)" in problem for problem in answer["problems"])


def lag_of(world):
    async def elsewhere(group):
        raise KafkaError(ErrorCode.NOT_COORDINATOR, group)

    coordinators = SimpleNamespace(of=lambda group: 2)
    leaders = SimpleNamespace(published=None, connections=None)
    groups = Groups(world.hosts[1].runtime, leaders, coordinators, elsewhere, world.forwarding, None)
    return groups.lag(Call(path={"group": "g"}))


@pytest.mark.parametrize("document", UNEXPECTED, ids=repr)
def test_invalid_response_of_the_only_broker_is_a_bad_gateway(world, document):
    """If the only queried broker's response is invalid, the problem has status 502, the broker and the reason."""
    world.serve(2, document)
    problem = world.problem(lag_of(world))
    assert (problem.status, problem.title) == (502, "unexpected response")
    assert problem.detail.startswith("broker 2: its response (status 200) ")
    assert "broker 2" in problem.what_to_do


@pytest.mark.parametrize("document", UNEXPECTED, ids=repr)
def test_decisions_are_validated(document):
    """Decisions and departures without required members, or with wrong types, are rejected."""
    assert problem_for(PEER_REMEMBERED, json.dumps(document)).status == 502


def problem_for(answer, text, status=200):
    with pytest.raises(Problem) as raised:
        answer.read(2, status, text if isinstance(text, bytes) else text.encode())
    return raised.value


ROWS = PeerResponseValidator(record({"rows": listing(record({"count": COUNT, "state": one_of("on", "off")}))}))


def test_unknown_members_are_accepted():
    """Additional members and values from newer releases are accepted, so that brokers can be upgraded one by one."""
    document = {"rows": [{"count": 1, "state": "paused", "since": 7}], "more": [1]}
    assert ROWS.read(2, 200, json.dumps(document).encode()) == document


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"<html>", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"rows": [], "rate": NaN}', "is not JSON: NaN"),
        (b'{"rows": [], "rate": 1e999}', "is not JSON: a number is too large"),
        (b'{"rows": [], "size": 1%b}' % (b"0" * 5000), "is not JSON: an integer has more than 64 bits"),
        (b'{"rows": [], "text": "\\ud800"}', "is not JSON"),
        (b'{"rows": [], "deep": %b}' % (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX), "is nested deeper than 64 levels"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[]", "is invalid: [] is not of type 'object'"),
        (b'{"rows": [{"count": 1, "state": "on"}, {"count": -1, "state": "on"}]}', "at .rows[1].count: -1 is less"),
        (b'{"rows": [{"state": "on"}]}', "at .rows[0]: 'count' is a required property"),
        (b'{"rows": "%b"}' % (b"x" * 100_000), "at .rows: "),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_problem_describes_the_error(text, wrong):
    """For any invalid response, the problem is short and names the broker and the location of the error."""
    problem = problem_for(ROWS, text)
    assert problem.status == 502
    assert problem.detail.startswith(f"broker 2: its response (status 200) {wrong}")
    assert len(problem.detail) < 500
    assert problem_of(problem) is problem
    json.dumps(problem.document("/here"), ensure_ascii=False).encode()


@pytest.mark.parametrize("document", [*UNEXPECTED, {"title": 1, "detail": [], "what_to_do": {"a": 1}, "status": "x"}])
@pytest.mark.parametrize(("status", "answered"), [(500, 500), (404, 404), (302, 502), (199, 502)])
def test_malformed_problem_of_another_broker(document, status, answered):
    """Any document with an error status becomes a problem whose fields are text."""
    problem = problem_for(ROWS, json.dumps(document), status)
    assert problem.status == answered
    assert isinstance(problem.title, str)
    assert isinstance(problem.detail, str)
    assert problem.what_to_do is None


def test_large_response_is_checked_in_a_thread(world):
    """A large response is validated in a thread, and rejected if it is invalid."""
    world.serve(2, {"entries": [{"id": "x"}] * 5000})
    world.serve(3, {})
    runs = []
    offload = world.hosts[1].offload
    run = offload.run
    offload.run = lambda function, *given: runs.append(function) or run(function, *given)
    answer = world.result(read_timeline(world)).document
    assert len(runs) == 1
    assert answer["problems"][0].startswith("broker 2: ")
