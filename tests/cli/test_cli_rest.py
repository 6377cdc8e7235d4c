"""The client of the admin API (streams, certificates, limits), and parsing of arguments."""

from __future__ import annotations

import ssl
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import chain

import click
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fake_admin import serving

from kreplica.cli.http import rest, server_events
from kreplica.cli.http.rest import AdminUnreachable, RequestRejected, RestClient, Server
from kreplica.cli.http.server_events import EventParser, EventTooLong, ReceivedEvent
from kreplica.cli.http.session import path_of
from kreplica.cli.terminal.parameter_types import (
    Assignment,
    Duration,
    Partition,
    Partitions,
    Replicas,
    Setting,
    Size,
    Time,
)
from kreplica.cli.terminal.screen import bytes_text, escape_controls, iso_time_text, seconds_text, time_text
from tests.support import real_reactor

STREAM = b': a comment\n\nid: 7\nevent: timeline\ndata: {"a":\ndata: 1}\n\ndata: x\r\n\r\nevent: empty\n\ndata: cut off'
EVENTS = [ReceivedEvent("timeline", '{"a":\n1}', "7"), ReceivedEvent("message", "x", "7")]


@pytest.mark.parametrize("size", [1, 2, 7, len(STREAM)])
def test_events_are_parsed_for_any_segmentation(size):
    """Events are parsed however they are segmented; comments and empty events are skipped."""
    parser = EventParser()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


def test_event_size_is_bounded(monkeypatch):
    monkeypatch.setattr(server_events, "EVENT_SIZE_MAX", 1000)
    parser = EventParser()
    pieces = (b"x" * 100 for _ in range(11))
    with pytest.raises(EventTooLong):
        list(chain.from_iterable(map(parser.feed, pieces)))


def run_with_client(admin, work, **server):
    """Run a coroutine function with a client, and return its result."""

    async def work_with_client():
        from twisted.internet import reactor

        return await work(RestClient(Server(admin.url, **server), reactor))

    return real_reactor.run(work_with_client())


def test_stream_ends_with_its_server(admin):
    """If the server ends a stream, the next one continues after the last received event."""
    admin.answers["GET /v1/events"] = STREAM

    async def all_of(client):
        return [event async for event in client.events("/v1/events", {"kind": "x"}, last_event_id="6")]

    assert run_with_client(admin, all_of) == EVENTS
    assert admin.last.headers["last-event-id"] == "6"
    assert admin.last.headers["accept"] == "text/event-stream"
    assert admin.last.query == {"kind": "x"}


def test_abandoned_stream(admin):
    """When a stream is no longer read, its connection is closed."""
    admin.answers["GET /v1/events"] = STREAM

    async def first(client):
        events = client.events("/v1/events")
        event = await anext(events)
        await events.aclose()
        return event

    assert run_with_client(admin, first) == EVENTS[0]


def test_refused_stream(admin):
    """The response to a refused stream is a problem like any other."""
    with pytest.raises(RequestRejected, match="nothing is at /v1/events"):
        run_with_client(admin, lambda client: anext(client.events("/v1/events")))


def test_silent_stream_times_out(admin, monkeypatch):
    """A stream that receives nothing times out, because servers without events send comments."""
    monkeypatch.setattr(rest, "SILENCE_S_MAX", 0.05)

    def hang(_):
        time.sleep(0.3)
        return 200, "text/event-stream", b""

    admin.answer = hang
    monkeypatch.setattr(rest, "RESPONSE_TIME_S_MAX", 0.05)
    with pytest.raises(AdminUnreachable, match=": timeout"):
        run_with_client(admin, lambda client: anext(client.events("/v1/events")))
    with pytest.raises(AdminUnreachable, match=": timeout"):
        run_with_client(admin, lambda client: client.get("/v1/cluster"))


def test_response_size_is_bounded(admin, monkeypatch):
    monkeypatch.setattr(rest, "RESPONSE_SIZE_MAX", 1000)
    admin.answers["GET /v1/cluster"] = {"a": "x" * 1000}
    with pytest.raises(AdminUnreachable, match="larger than 1,000 bytes"):
        run_with_client(admin, lambda client: client.get("/v1/cluster"))


def test_if_match(admin):
    """A write can be made conditional on an ETag."""
    admin.answers["PATCH /v1/configs/topics/t"] = {"configs": []}

    async def write(client):
        return await client.send("PATCH", path_of("configs", "topics", "t"), {"remove": ["a"]}, if_match="3.x")

    run_with_client(admin, write)
    assert admin.last.headers["if-match"] == '"3.x"'
    assert admin.last.headers["content-type"] == "application/json"


@pytest.fixture
def certificate(tmp_path):
    """Write a self-signed certificate for 127.0.0.1, and its key, to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kreplica")])
    now, names = datetime.now(UTC), x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(made.add_extension(names, critical=False).sign(key, hashes.SHA256()).public_bytes(pem) + private)
    return path


def test_certificates(certificate):
    """Only servers with a trusted certificate are accepted."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with serving(tls) as admin:
        admin.answers["GET /v1/cluster"] = {"a": 1}
        assert run_with_client(admin, lambda client: client.get("/v1/cluster"), ca_file=certificate) == {"a": 1}
        with pytest.raises(AdminUnreachable, match=r"certificate verify failed \(use --ca-file"):
            run_with_client(admin, lambda client: client.get("/v1/cluster"))
        assert len(admin.requests) == 1


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Duration(), "90s", 90_000),
        (Duration(), "1d2h3m4s5ms", 93_784_005),
        (Duration(), "PT2H30M", 9_000_000),
        (Duration(), "p1d", 86_400_000),
        (Time(), "1790000000123", 1_790_000_000_123),
        (Time(), "2026-09-21T16:13:20.5+02:00", 1_790_000_000_500),
        (Size(), "1048576", 1_048_576),
        (Size(), "10MB", 10_000_000),
        (Size(), "1.5MiB", 1_572_864),
        (Size(), "2k", 2000),
        (Size(), "50MB/s", 50_000_000),
        (Setting(), "a=b=c", ("a", "b=c")),
        (Setting(), "a=", ("a", "")),
        (Partition(), "a.b-c:12", ("a.b-c", 12)),
        (Partitions(), "t", ("t", None)),
        (Partitions(), "t:1,3-5", ("t", [1, 3, 4, 5])),
        (Replicas(), "t:0=1,2", ("t", 0, [1, 2])),
        (Assignment(), "3=2", (3, [2])),
    ],
)
def test_parsing_of_arguments(kind, text, value):
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Duration(), ""), (Duration(), "10"), (Duration(), "P"), (Duration(), "-1s"),
        (Time(), "12"), (Time(), "2027-13-01"),
        (Size(), "-1"), (Size(), "1XB"),
        (Setting(), "=x"), (Setting(), "x"),
        (Partition(), ":0"), (Partition(), "t:"), (Partition(), "t:\u0663"),
        (Partitions(), "t:"), (Partitions(), "t:1-"), (Partitions(), "t:0-999999999"),
        (Replicas(), "t:0="), (Replicas(), "t=1"), (Assignment(), "=1"),
    ],
)  # fmt: skip
def test_invalid_arguments(kind, text):
    """The error for an invalid argument contains an example."""
    with pytest.raises(click.BadParameter, match="expected"):
        kind.convert(text, None, None)


@pytest.fixture
def _far_from_utc(monkeypatch):
    """Set a local time zone that differs from UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_far_from_utc")
def test_times_are_in_utc():
    """Times are printed in UTC with the zone's name, as brokers print them, and can be entered in the same form."""
    at_ms = 1_790_000_000_123
    assert time_text(at_ms) == "2026-09-21 14:13:20.123 UTC"
    assert iso_time_text(at_ms) == "2026-09-21T14:13:20.123+00:00"
    for text in (time_text(at_ms), iso_time_text(at_ms), "2026-09-21T14:13:20.123", "2026-09-21 19:43:20.123+05:30"):
        assert Time().convert(text, None, None) == at_ms


def test_formatting_of_numbers():
    """Sizes, times and durations are formatted with units."""
    assert list(map(bytes_text, (None, 0, 1023, 1536, 5 << 40))) == [None, "0 B", "1023 B", "1.5 KiB", "5.0 TiB"]
    assert list(map(seconds_text, (None, 0, 89, 3599, 7260))) == [None, "0 s", "89 s", "1 h 0 min", "2 h 1 min"]
    assert time_text(None) is None
    assert time_text(-1) is None
    assert time_text(1 << 60) == "1152921504606846976 ms since 1970"
    assert escape_controls("a\tb\x9bc") == "a\\x09b\\x9bc"
