"""Crafted and damaged journals: ``kreplica replay`` names the invalid file and line, in bounded memory."""

from __future__ import annotations

import base64
import json
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_testing_replay import CONTROLLER, DIRECTORY, handle_all_requests, scene_with_journal

from kreplica.cli.diagnostics.replay import command
from kreplica.controller.journal import files as journal_files
from kreplica.controller.journal.lines import decode_line
from kreplica.testing.replay import reading
from kreplica.testing.storms.cleanup import deferred_collection

ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**30, 1e308, -0.5, float("nan"), float("inf"), "", "x", "\x1b[2J", "\ud800",
    "orders:0-99999999999", "__class__", [], [[]], {}, {"a": {}}, [None], {"base64": "!"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@cache
def journals() -> list[list[dict[str, Any]]]:
    """Return the entries of each journal file of a real controller; later files start with the controller's state."""
    before, journal_files.FILE_COUNT = journal_files.FILE_COUNT, 2**20
    try:
        scene = scene_with_journal(brokers=4)
        handle_all_requests(scene)
    finally:
        journal_files.FILE_COUNT = before
    disk = scene.controllers[CONTROLLER].host.disk
    names = disk.list_directory(DIRECTORY)
    files = [disk.read_file(f"{DIRECTORY}/{name}") for name in names]
    return [[decode_line(line) for line in data.splitlines(keepends=True)] for data in files]


def encode_journal(entries: list[Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in entries)


def run_replay(path: Path, data: bytes) -> Result:
    file = path / "controller-journal-1-1.jsonl"
    file.write_bytes(data)
    return CliRunner().invoke(command, [str(file), "--verbose"])


def error_of(path: Path, data: bytes) -> str:
    """Return the error message for a rejected file."""
    result = run_replay(path, data)
    assert_clear(result)
    assert result.exit_code == 2, result.output
    assert "controller-journal-1-1.jsonl" in result.output
    return result.output


def assert_clear(result: Result) -> None:
    """Check that a replay ended with an exit status and messages, without a traceback or control characters."""
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) for every node of a document."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        found.append((value, key))
        found.extend(nodes(value[key]))
    return found


def change_value(entries: list[Any], random: Random) -> None:
    container, key = random.choice(nodes(random.choice(entries[:1] * 3 + entries)))
    container[key] = random.choice(ODD)


def remove_member(entries: list[Any], random: Random) -> None:
    container, key = random.choice(nodes(random.choice(entries)))
    del container[key]


def move_entry(entries: list[Any], random: Random) -> None:
    entry = entries.pop(random.randrange(1, len(entries)))
    entries.insert(random.randrange(1, len(entries)), entry)
    renumber(entries)


def repeat_entry(entries: list[Any], random: Random) -> None:
    entries.insert(random.randrange(1, len(entries)), random.choice(entries[1:]))
    entries[:] = [dict(each) for each in entries]
    renumber(entries)


def renumber(entries: list[Any]) -> None:
    for number, entry in enumerate(entries):
        entry["n"] = number


CHANGES = (change_value, change_value, remove_member, move_entry, repeat_entry)


@pytest.mark.parametrize("seed", range(60))
def test_a_crafted_journal_ends_with_a_message(tmp_path, seed):
    """A replay with wrong types, huge numbers, missing members, or reordered or repeated entries prints a message."""
    random = Random(seed)
    entries = json.loads(json.dumps(random.choice(journals())))
    for _ in range(random.randrange(1, 4)):
        random.choice(CHANGES)(entries, random)
    assert_clear(run_replay(tmp_path, encode_journal(entries)))


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_journal_ends_with_a_message(tmp_path, seed):
    """A replay of changed bytes, a truncated file or random bytes prints a message."""
    random = Random(seed)
    data = bytearray(encode_journal(journals()[0]))
    match seed % 3:
        case 0:
            for _ in range(5):
                data[random.randrange(len(data))] = random.randrange(256)
        case 1:
            del data[random.randrange(len(data)) :]
        case _:
            data = bytearray(random.randbytes(10_000))
    assert_clear(run_replay(tmp_path, bytes(data)))


def first(**changes: Any) -> dict[str, Any]:
    return journals()[0][0] | changes


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("config", []),
        ("config", {"unknown": 1, "broker_id": [1]}),
        ("s", "soon"),
        ("s", None),
        ("broker", {}),
        ("wall_clock_ms", 10**30),
        ("state", "office"),
        ("state", {"office": 7}),
        ("journal", True),
    ],
)
def test_an_invalid_first_line(tmp_path, name, value):
    """The first line is validated before a controller is created from it."""
    error_of(tmp_path, encode_journal([first(**{name: value}), *journals()[0][1:]]))


HUGE = 10**12


def journal_with_change(find: Callable[[dict[str, Any]], bool], **changes: Any) -> tuple[list[dict[str, Any]], int]:
    """Return a journal with one changed entry, and the line number of that entry."""
    entries = list(journals()[0])
    number = next(number for number, entry in enumerate(entries) if find(entry))
    entries[number] = entries[number] | changes
    return entries, number + 1


def is_result(entry: dict[str, Any]) -> bool:
    return entry.get("of") == "multi" and "value" in entry


@pytest.mark.parametrize(
    ("find", "changes"),
    [
        (is_result, {"value": HUGE}),
        (is_result, {"error": ["MultiFailed", 0, ["NoNode", "/", ""], HUGE]}),
        (lambda entry: entry.get("in") == "call", {"method": "__class__"}),
        (lambda entry: entry.get("in") == "call", {"method": "_resign"}),
        (lambda entry: entry.get("in") == "watch", {"event": ["\x1b[2J", "", ""]}),
    ],
)  # fmt: skip
def test_an_impossible_entry_is_named(tmp_path, find, changes):
    """An entry with a number that implies billions of values, or with an unknown method, is named in the error."""
    entries, line = journal_with_change(find, **changes)
    assert f"line {line} is not a valid input of a controller" in error_of(tmp_path, encode_journal(entries))


def test_the_number_of_partitions_is_bounded(tmp_path):
    """A pending command in an earlier file may not name more partitions than a cluster may have."""
    entries = next(
        entries for entries in json.loads(json.dumps(journals())) if (entries[0]["state"] or {}).get("office")
    )
    command_of = {"command": 1, "api": "StopReplica", "epoch": 1, "delete": False, "is_sent": True}
    channel = {"channel": 1, "commands": [command_of | {"partitions": [f"orders:0-{HUGE}"]}]}
    entries[0]["state"]["office"]["channels"] = [[2, channel]]
    assert "line 1 is not a valid input" in error_of(tmp_path, encode_journal(entries))


@pytest.mark.parametrize(
    "line",
    [
        {"n": 0, "packed": packed(b'{"n": 0, "a": "' + b"x" * 200_000_000 + b'"}')},
        {"n": 0, "packed": 7},
        {"n": 0, "packed": "!"},
        {"n": 0, "packed": packed(b"[" * 100_000)},
        {"n": 0, "packed": packed(b"{}")[:-8]},
        {"n": True},
        [],
    ],
    ids=lambda line: repr(line)[:30],
)
def test_a_packed_line_is_bounded(tmp_path, line):
    """A line that decompresses to a thousand times its size uses at most the memory of a valid one."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "line 1 of 1 cannot be read" in error_of(tmp_path, encode_journal([line]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 192 * 1024


@pytest.mark.parametrize("data", [b"[" * 200_000 + b"\n", b'{"n":0,"a":' * 100_000 + b"\n", b"1" * 5000 + b"\n", b"\n"])
def test_a_line_that_is_not_json_is_named(tmp_path, data):
    """A line with deep nesting, or a number with thousands of digits, is named in the error."""
    assert "line 1 of 1 cannot be read" in error_of(tmp_path, data)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    """The size of a file, and of all its decompressed lines together, is limited."""
    monkeypatch.setattr(reading, "FILE_BYTES_MAX", 50_000)
    assert "more than the limit of 50,000" in error_of(tmp_path, b"x" * 60_000)
    entries = [first(), *({"n": n, "packed": packed(b'{"n":%d,"a":"%b"}' % (n, b"x" * 20_000))} for n in range(1, 9))]
    assert "uncompressed lines are larger" in run_replay(tmp_path, encode_journal(entries)).output


def test_an_unreadable_file_is_named(tmp_path):
    """If a path that should be a file is a directory, the command ends with a message."""
    (tmp_path / "controller-journal-1-1.jsonl").mkdir()
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert_clear(result)
    assert "cannot be read" in result.output


def test_errors_inside_a_controller_are_not_printed(tmp_path):
    """A response of the wrong type fails in a callback; the error is not printed, even if the log is the terminal."""
    entries, _ = journal_with_change(lambda entry: entry.get("of") == "get_data" and "value" in entry, of="other")
    file = tmp_path / "controller-journal-1-1.jsonl"
    file.write_bytes(encode_journal(entries))
    program = [sys.executable, "-m", "kreplica.cli", "replay", "--verbose", str(file)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    assert "Unhandled" not in ended.stderr
    assert ended.stdout or ended.stderr
