"""The benchmark of hand-overs finds the events of each record among those of all processes."""

import socket

from benchmarks.hand_over_stamps import APPENDED, READ, SENT, Event, EventFile, StampedSocket, read_events
from benchmarks.hand_overs import Timelines

PRODUCER, CONSUMER, FETCHER_2, FETCHER_3, CONTROLLER = 1001, 1002, 1003, 1004, 1005
US = 1000


def event(kind, port, from_us, to_us):
    return Event(kind, port, 100, from_us * US, to_us * US)


def test_a_record_of_one_broker():
    """Each hand-over lasts from the end of the previous one; events after the arrival are ignored."""
    leader = [
        event(READ, PRODUCER, 10, 30),
        event(APPENDED, 0, 50, 60),
        event(SENT, CONSUMER, 80, 95),
        event(SENT, PRODUCER, 95, 99),
        event(READ, CONSUMER, 130, 140),
    ]
    times = Timelines({1: leader}, 1, PRODUCER, CONSUMER, [event(READ, 0, 90, 120)]).times_us([0])
    assert list(times.items()) == [
        ("producer -> leader: kernel", [10]),
        ("leader: wake-up, read", [20]),
        ("leader: handle, append", [30]),
        ("leader: answer the waiting fetch", [20]),
        ("leader -> consumer: kernel", [10]),
        ("consumer: wake-up, read", [30]),
        ("all", [120]),
    ]


def test_a_replicated_record_waits_for_the_slower_follower():
    leader = [
        event(READ, CONTROLLER, 1, 2),
        event(READ, PRODUCER, 10, 30),
        event(APPENDED, 0, 50, 60),
        event(SENT, FETCHER_2, 70, 75),
        event(SENT, FETCHER_3, 76, 80),
        event(READ, FETCHER_2, 120, 130),
        event(READ, FETCHER_3, 180, 190),
        event(SENT, CONSUMER, 200, 210),
        event(READ, FETCHER_2, 320, 330),
        event(READ, FETCHER_3, 380, 390),
    ]
    fast = [
        event(SENT, CONTROLLER, 1, 2),
        event(READ, FETCHER_2, 73, 90),
        event(APPENDED, 0, 95, 100),
        event(SENT, FETCHER_2, 110, 125),
    ]
    slow = [event(READ, FETCHER_3, 78, 140), event(APPENDED, 0, 145, 150), event(SENT, FETCHER_3, 170, 185)]
    timelines = Timelines({1: leader, 2: fast, 3: slow}, 1, PRODUCER, CONSUMER, [event(READ, 0, 205, 240)])
    times = {name: values[0] for name, values in timelines.times_us([0]).items()}
    assert times["leader: answer the follower's fetch"] == 16
    assert times["follower: wake-up, read"] == 62
    assert times["follower: send the next fetch"] == 20
    assert times["leader: wake-up, read the fetch"] == 10
    assert times["all"] == 240 == sum(times.values()) / 2


def test_records_that_are_late_or_lost_are_ignored():
    """The events of a record that arrives after the next one was sent look like those of the next one."""
    leader = [event(READ, PRODUCER, 10, 30), event(APPENDED, 0, 50, 60), event(SENT, CONSUMER, 80, 95)]
    timelines = Timelines({1: leader}, 1, PRODUCER, CONSUMER, [event(READ, 0, 90, 120)])
    assert timelines.times_us([0, 110 * US]) == {}


def test_sockets_record_reads_with_the_arrival_and_sends(tmp_path):
    events = EventFile(tmp_path / "events")
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    with server, client, StampedSocket(server.accept()[0], events, 7) as stamped:
        client.sendall(b"request")
        stamped.setblocking(True)
        buffer = bytearray(100)
        assert stamped.recv_into(buffer) == 7
        client.sendall(b"more")
        assert stamped.recv(100) == b"more"
        assert stamped.send(b"response") == 8
    recorded = read_events(tmp_path / "events")
    assert [(each.kind, each.port, each.size) for each in recorded] == [(READ, 7, 7), (READ, 7, 4), (SENT, 7, 8)]
    for each in recorded:
        assert 0 <= each.to_ns - each.from_ns < 10 * 10**9
