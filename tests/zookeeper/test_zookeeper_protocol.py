"""Encoding and decoding of ZooKeeper's protocol: golden bytes, round trips, an independent encoder, damaged input."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import kazoo.protocol.serialization as kazoo_wire
import pytest
from kazoo.security import ACL as KazooAcl
from kazoo.security import Id as KazooId

from kreplica.errors import ProtocolError
from kreplica.zookeeper import requests, responses
from kreplica.zookeeper.errors import (
    ERRORS_BY_CODE,
    BadArguments,
    BadVersion,
    NoNode,
    Unimplemented,
    UnknownCode,
    error_of,
)
from kreplica.zookeeper.framing import FrameSplitter
from kreplica.zookeeper.jute import Reader, pack_int32, pack_text, pack_texts
from kreplica.zookeeper.records import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    READ_ACL,
    STAT,
    AddWatchMode,
    ConnectRequest,
    ConnectResponse,
    EventType,
    KeeperState,
    Opcode,
    Stat,
    WatcherType,
    WatchEvent,
    decode_watch_event,
    encode_watch_event,
    reply_frame,
    request_frame,
)

STAT_VALUE = Stat(2**40, 2**41, 1_700_000_000_000, 1_700_000_000_001, 3, 4, 5, -(2**62), 6, 7, 2**42)

REQUESTS: list[requests.Request] = [
    requests.Create("/a/é", b"data", ephemeral=True),
    requests.Create("/a", None, CREATOR_ALL_ACL + READ_ACL, sequence=True),
    requests.Create("/a", b"", with_stat=False),
    requests.Delete("/a", 7),
    requests.SetData("/a", b"\x00\xff", 2),
    requests.SetData("/a", None),
    requests.Check("/a", 0),
    requests.Exists("/a", True),
    requests.GetData("/a"),
    requests.GetChildren("/a", True),
    requests.GetChildren("/a", with_stat=True),
    requests.GetAcl("/a"),
    requests.SetAcl("/a", OPEN_ACL, 1),
    requests.Sync("/"),
    requests.GetEphemerals("/"),
    requests.GetAllChildrenNumber("/"),
    requests.AddWatch("/a", AddWatchMode.PERSISTENT_RECURSIVE),
    requests.RemoveWatches("/a", WatcherType.DATA),
    requests.CheckWatches("/a"),
    requests.SetWatches(9, ["/a"], ["/b"], []),
    requests.SetWatches(9, [], [], ["/c"], ["/d"], ["/e", "/f"]),
    requests.Auth("digest", b"user:password"),
    requests.Sasl(b"token"),
    requests.Ping(),
    requests.CloseSession(),
    requests.Multi([]),
    requests.Multi(
        [
            requests.Check("/epoch", 3),
            requests.Create("/a", b"1"),
            requests.Create("/b", b"2", with_stat=False),
            requests.SetData("/c", b"3", 4),
            requests.Delete("/d"),
        ]
    ),
    requests.MultiRead([requests.GetData("/a"), requests.GetChildren("/b")]),
]

RESPONSES: list[tuple[bytes, Callable[[bytes, int, int], Any], Any]] = [
    (responses.encode_stat(STAT_VALUE), responses.decode_stat, STAT_VALUE),
    (responses.encode_data(b"data", STAT_VALUE), responses.decode_data, (b"data", STAT_VALUE)),
    (responses.encode_data(None, STAT_VALUE), responses.decode_data, (b"", STAT_VALUE)),
    (
        responses.encode_created(responses.Created("/a", STAT_VALUE)),
        responses.decode_created,
        responses.Created("/a", STAT_VALUE),
    ),
    (responses.encode_path("/é"), responses.decode_path, "/é"),
    (responses.encode_children(["a", "b"]), responses.decode_children, ["a", "b"]),
    (
        responses.encode_children_and_stat(["a"], STAT_VALUE),
        responses.decode_children_and_stat,
        (["a"], STAT_VALUE),
    ),
    (responses.encode_acl(OPEN_ACL, STAT_VALUE), responses.decode_acl, (OPEN_ACL, STAT_VALUE)),
    (responses.encode_count(12), responses.decode_count, 12),
    (responses.encode_token(b"token"), responses.decode_token, b"token"),
    (responses.encode_empty(), responses.decode_empty, None),
    (
        responses.encode_multi_results(
            [
                (Opcode.CHECK, None),
                (Opcode.CREATE2, responses.Created("/a", STAT_VALUE)),
                (Opcode.CREATE, responses.Created("/b", None)),
                (Opcode.SET_DATA, STAT_VALUE),
                (Opcode.DELETE, None),
            ]
        ),
        responses.decode_multi_results,
        [None, ("/a", STAT_VALUE), ("/b", None), STAT_VALUE, None],
    ),
    (
        responses.encode_multi_results([(Opcode.SET_DATA, STAT_VALUE)] * 60),
        responses.decode_multi_results,
        [STAT_VALUE] * 60,
    ),
    (
        responses.encode_multi_results([*[(Opcode.SET_DATA, STAT_VALUE)] * 60, (Opcode.DELETE, None)]),
        responses.decode_multi_results,
        [STAT_VALUE] * 60 + [None],
    ),
    (responses.encode_multi_failure([0, -103, -2]), responses.decode_multi_results, [0, -103, -2]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_request_round_trip(request_: requests.Request) -> None:
    body = b"xx" + request_.encode()
    assert requests.decode_request(requests.opcode_of(request_), Reader(body, 2)) == request_


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_truncated_request_is_refused(request_: requests.Request) -> None:
    """A request truncated at any length raises ProtocolError."""
    body = request_.encode()
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            requests.decode_request(requests.opcode_of(request_), Reader(body, 0, size))


@pytest.mark.parametrize(("body", "decode", "value"), RESPONSES)
def test_response_round_trip(body: bytes, decode: Callable[[bytes, int, int], Any], value: object) -> None:
    """The response may be at any position in the buffer."""
    assert decode(b"before" + body + b"after", 6, 6 + len(body)) == value


@pytest.mark.parametrize(("body", "decode", "value"), RESPONSES)
def test_truncated_or_extended_response_is_refused(
    body: bytes, decode: Callable[[bytes, int, int], Any], value: object
) -> None:
    """ProtocolError is raised even if other bytes follow in the buffer."""
    for end in (*range(len(body)), len(body) + 1):
        with pytest.raises(ProtocolError):
            decode(body + b"\x00" * 100, 0, end)


def test_multi_read_response_has_a_result_for_each_read() -> None:
    """A missing znode affects only its own result, which names it."""
    body = responses.encode_multi_read_results([(b"x", STAT_VALUE), NoNode("/b"), ["c"]])
    data, missing, children = responses.decode_multi_read_results(body, 0, len(body), ["/a", "/b", "/c"])
    assert (data, children) == ((b"x", STAT_VALUE), ["c"])
    assert isinstance(missing, NoNode)
    assert missing.path == "/b"
    for paths in (["/a"], ["/a"] * 4):
        with pytest.raises(ProtocolError):
            responses.decode_multi_read_results(body, 0, len(body), paths)


@pytest.mark.parametrize("names", [[], ["a"], ["", "\u00e9", "x" * 300], [f"t{number}" for number in range(1000)]])
def test_names_round_trip(names: list[str]) -> None:
    """Vectors with any number of strings, of any length, are decoded."""
    reader = Reader(b"??" + pack_texts(names) + b"!", 2)
    assert reader.texts() == names
    assert reader.remaining == 1


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (b"\xff\xff\xff\xff", []),
        (pack_int32(2) + pack_int32(-1) + pack_text("a"), ["", "a"]),
        (pack_int32(1) + pack_int32(-2), "negative length -2"),
        (pack_int32(1) + pack_int32(2) + b"a", "2 bytes expected, 1 left"),
        (pack_int32(2) + pack_text("abcd"), "4 bytes expected, 0 left"),
        (pack_int32(9) + pack_text("a"), "a vector of 9 elements in 5 bytes"),
        (pack_int32(1) + pack_int32(1) + b"\xff", "not UTF-8"),
    ],
)
def test_irregular_names(encoded: bytes, expected: list[str] | str) -> None:
    """A null vector or string is read as empty; other irregularities are errors."""
    if isinstance(expected, str):
        with pytest.raises(ProtocolError, match=expected):
            Reader(encoded).texts()
    else:
        assert Reader(encoded).texts() == expected


def test_golden_bytes_of_set_data() -> None:
    expected = bytes.fromhex(
        "0000001b"  # length
        "00000007"  # xid
        "00000005"  # setData
        "00000002" "2f61"  # path /a
        "00000005" "68656c6c6f"  # data hello
        "00000003"  # version
    )  # fmt: skip
    assert request_frame(7, Opcode.SET_DATA, requests.SetData("/a", b"hello", 3).encode()) == expected


def test_golden_bytes_of_an_error_and_a_watch_event() -> None:
    """The error is NoNode, and the event is the deletion of a znode."""
    assert reply_frame(7, 9, -101) == bytes.fromhex("00000010000000070000000000000009ffffff9b")
    event = WatchEvent(EventType.NODE_DELETED, KeeperState.SYNC_CONNECTED, "/a")
    body = bytes.fromhex("0000000200000003000000022f61")
    assert encode_watch_event(event) == body
    assert decode_watch_event(Reader(body)) == event
    with pytest.raises(ProtocolError):
        decode_watch_event(Reader(b"\x7f" + body[1:]))


KAZOO_ACL = [KazooAcl(31, KazooId("world", "anyone"))]
KAZOO_PAIRS: list[tuple[Any, requests.Request]] = [
    (kazoo_wire.Create("/é", b"1", KAZOO_ACL, 3), requests.Create("/é", b"1", OPEN_ACL, True, True, False)),
    (kazoo_wire.Create2("/a", b"", KAZOO_ACL, 1), requests.Create("/a", b"", OPEN_ACL, True)),
    (kazoo_wire.Delete("/a", -1), requests.Delete("/a")),
    (kazoo_wire.Exists("/a", print), requests.Exists("/a", True)),
    (kazoo_wire.GetData("/a", None), requests.GetData("/a")),
    (kazoo_wire.SetData("/a", b"22", 5), requests.SetData("/a", b"22", 5)),
    (kazoo_wire.SetData("/a", None, 5), requests.SetData("/a", None, 5)),
    (kazoo_wire.GetACL("/a"), requests.GetAcl("/a")),
    (kazoo_wire.SetACL("/a", KAZOO_ACL, 2), requests.SetAcl("/a", OPEN_ACL, 2)),
    (kazoo_wire.GetChildren("/a", print), requests.GetChildren("/a", True)),
    (kazoo_wire.GetChildren2("/a", None), requests.GetChildren("/a", with_stat=True)),
    (kazoo_wire.Sync("/a"), requests.Sync("/a")),
    (
        kazoo_wire.Transaction(
            [
                kazoo_wire.Create("/a", b"1", KAZOO_ACL, 0),
                kazoo_wire.SetData("/b", b"2", 1),
                kazoo_wire.Delete("/c", 2),
                kazoo_wire.CheckVersion("/d", 3),
            ]
        ),
        requests.Multi(
            [
                requests.Create("/a", b"1", with_stat=False),
                requests.SetData("/b", b"2", 1),
                requests.Delete("/c", 2),
                requests.Check("/d", 3),
            ]
        ),
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), KAZOO_PAIRS)
def test_requests_equal_those_of_an_independent_client(theirs: Any, ours: requests.Request) -> None:
    """kazoo and this client encode a request as the same bytes, with the same opcode."""
    assert ours.encode() == bytes(theirs.serialize())
    assert requests.opcode_of(ours) == theirs.type


def test_handshake_round_trip() -> None:
    """The last byte, added in ZooKeeper 3.4, is optional."""
    for handshake in (ConnectRequest(5, 6000, 7, b"p" * 16, True), ConnectResponse(6000, 7, b"p" * 16)):
        body = handshake.encode()
        assert type(handshake).decode(Reader(body)) == handshake
        assert type(handshake).decode(Reader(body[:-1])) == handshake._replace(read_only=False)
    assert ConnectRequest(5, 6000, 7, b"p" * 16).encode() == bytes(
        kazoo_wire.Connect(0, 5, 6000, 7, b"p" * 16, False).serialize()
    )


def test_unsupported_requests_are_not_reported_as_malformed() -> None:
    """Unknown operations and modes have their own errors, for which a server keeps the connection open."""
    container = requests.Create("/a").encode()[:-4] + (4).to_bytes(4, "big")
    for opcode, body in ((Opcode.CREATE2, container), (Opcode.CREATE_CONTAINER, container), (999, b"")):
        with pytest.raises(Unimplemented):
            requests.decode_request(opcode, Reader(body))
    for opcode in (Opcode.ADD_WATCH, Opcode.REMOVE_WATCHES, Opcode.CHECK_WATCHES):
        with pytest.raises(BadArguments):
            requests.decode_request(opcode, Reader(b"\x00\x00\x00\x02/a\x00\x00\x00\x09"))


def test_each_error_code_has_its_class() -> None:
    """The error for an unknown code keeps that code."""
    assert isinstance(error_of(-103, "/a"), BadVersion)
    assert str(error_of(-103, "/a")) == "/a: the znode's version differs from the expected one"
    assert all(error_of(code).code == code for code in ERRORS_BY_CODE)
    unknown = error_of(-999, "/a")
    assert isinstance(unknown, UnknownCode)
    assert unknown.code == -999


def _split(pieces: list[bytes], frame_size_max: int = 100_000) -> list[bytes]:
    splitter = FrameSplitter(frame_size_max)
    return [buffer[start:end] for piece in pieces for buffer, start, end in splitter.frames(piece)]


def test_frames_for_any_segmentation() -> None:
    bodies = [b"", b"a", b"bc" * 700, b"", b"d" * 100_000, b"e"]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    assert _split([stream]) == bodies
    assert _split([stream[index : index + 1] for index in range(len(stream))]) == bodies
    choose = random.Random(1)
    for _ in range(50):
        cuts = sorted(choose.choices(range(len(stream)), k=20))
        pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert _split(pieces) == bodies


@pytest.mark.parametrize("length", [-1, 100_001, 2**31 - 1])
def test_frame_above_the_limit_ends_the_stream(length: int) -> None:
    """The frame is refused as soon as its length is received."""
    with pytest.raises(ProtocolError, match="length"):
        _split([length.to_bytes(4, "big", signed=True)])


def test_damaged_bytes_raise_typed_errors_only() -> None:
    """Decoding 20,000 mutated requests raises no other errors."""
    choose = random.Random(2)
    bodies = [(requests.opcode_of(each), each.encode()) for each in REQUESTS]
    for _ in range(20_000):
        opcode, body = choose.choice(bodies)
        damaged = bytearray(body or b"\x00")
        for _ in range(choose.randint(1, 3)):
            damaged[choose.randrange(len(damaged))] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        try:
            requests.decode_request(opcode, Reader(bytes(damaged)))
        except (ProtocolError, Unimplemented, BadArguments):
            pass


def test_size_of_a_stat() -> None:
    assert STAT.size == 68
