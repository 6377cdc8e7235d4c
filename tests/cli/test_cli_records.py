"""Records as text and in files, without a cluster: JSON, Parquet, templates."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.blocking.reader import ReadRecord
from kreplica.cli.http.session import CommandFailed
from kreplica.cli.records.line_input import read_files
from kreplica.cli.records.positions import PartitionsType, Start, StartType
from kreplica.cli.records.record_format import compile_template, for_terminal
from kreplica.cli.records.record_json import BadRecord, parse_line, record_line
from kreplica.cli.transfer import archive_files
from kreplica.cli.transfer.archive_files import LINE_SUFFIXES, file_format, line_sink, new_file, read_lines
from kreplica.cli.transfer.archive_parquet import ParquetSink, read_parquet, row_count
from kreplica.cli.transfer.copying import Checksums
from kreplica.wire.batches import TimestampType

data = st.none() | st.binary(max_size=60) | st.text(max_size=20).map(str.encode)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.binary(max_size=5).map(
    lambda name: name.decode(errors="surrogateescape")
)
headers = st.lists(st.tuples(names, data), max_size=4).map(tuple)
times = st.integers(-1, 253402300799999)
records = st.builds(
    ReadRecord,
    st.just("t"),
    st.integers(0, 3),
    st.integers(0, 2**62),
    times,
    st.sampled_from(TimestampType),
    data,
    data,
    headers,
)


def record(**more: object) -> ReadRecord:
    fields = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp_ms": 1_700_000_000_123,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": b"k",
        "value": b"v",
        "headers": (("a", b"b"),),
    }
    return ReadRecord(**(fields | more))  # type: ignore[arg-type]


# --- JSON ---


@given(records)
def test_json_round_trip(made: ReadRecord) -> None:
    """Binary keys, nulls, and header names that are not UTF-8 survive a round trip."""
    line = record_line(made)
    assert b"\n" not in line
    assert parse_line(line) == (made.key, made.value, made.headers, made.partition, made.timestamp_ms)


def test_short_json_forms() -> None:
    """Members may be omitted, and headers may be an object."""
    assert parse_line(b'{"value": "v"}') == (None, b"v", (), None, None)
    assert parse_line(b'{"key": "k", "headers": {"a": "b", "c": null}}').headers == (("a", b"b"), ("c", None))
    assert parse_line(b'{"value": "AAE=", "value_encoding": "base64"}').value == b"\0\1"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "invalid JSON"),
        (b"[1]", "expected a JSON object.*not a list"),
        (b'{"value": {"a": 1}}', "value: expected a string or null, not an object"),
        (b'{"value": "?", "value_encoding": "base64"}', "value: "),
        (b'{"value": "v", "value_encoding": "rot13"}', "rot13"),
        (b'{"value": "\\udc80"}', "value: "),
        (b'{"partition": -1}', "partition: expected an integer of at least 0"),
        (b'{"partition": true}', "partition: "),
        (b'{"timestamp_ms": 1.5}', "timestamp_ms: "),
        (b'{"headers": [1]}', "headers: expected a list of objects"),
        (b'{"headers": [{"value": "v"}]}', "headers: expected a string as the key"),
        (b'{"headers": [{"key": "\\ud800"}]}', "headers: "),
    ],
)
def test_invalid_json_lines(line: bytes, why: str) -> None:
    """The error for an invalid line names the member and the expected type."""
    with pytest.raises(BadRecord, match=why):
        parse_line(line)


# --- files ---


@pytest.mark.parametrize("kind", LINE_SUFFIXES)
def test_lines_round_trip_through_each_file_format(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are restored from files, even of many frames, and standard programs for each format can read these."""
    monkeypatch.setattr(archive_files, "FRAME_SIZE", 5000)
    lines = [b"%d " % number + bytes(97 + number % 26 for _ in range(number % 500)) for number in range(1000)]
    path = tmp_path / f"lines{kind}"
    assert file_format(path) == kind
    sink = line_sink(path, kind)
    for line in lines:
        sink.write(line + b"\n")
    sink.close()
    seen: list[int] = []
    assert list(read_lines(path, kind, seen.append)) == lines
    assert seen[-1] == path.stat().st_size
    peers = {
        ".jsonl": lambda content: content,
        ".jsonl.gz": gzip.decompress,
        ".jsonl.zst": lambda content: (
            zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content), read_across_frames=True).read()
        ),
    }
    assert peers[kind](path.read_bytes()).split(b"\n")[:-1] == lines


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("sized", [True, False])
def test_zstd_files_of_other_programs_are_read(tmp_path: Path, checksum: bool, sized: bool) -> None:
    """Zstandard frames may lack the content size and the checksum."""
    content = b"".join(b"%d\n" % number for number in range(100_000)) + bytes(300_000)
    compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=sized)
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(compressor.compress(content) + compressor.compress(b"x\n"))
    lines = list(read_lines(path, ".jsonl.zst", lambda _: None))
    assert lines[:2] == [b"0", b"1"]
    assert len(lines) == 100_001


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (".jsonl.gz", "cut"),
        (".jsonl.gz", "changed"),
        (".jsonl.gz", "other"),
        (".jsonl.zst", "cut"),
        (".jsonl.zst", "other"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, kind: str, damage: str) -> None:
    """A truncated, changed or foreign file raises an error with its name."""
    path = tmp_path / f"x{kind}"
    sink = line_sink(path, kind)
    sink.write(bytes(range(256)) * 50)
    sink.close()
    content = path.read_bytes()
    damaged = {"cut": content[:-9], "changed": content[:20] + b"\xff" * 20 + content[40:], "other": b"nonsense"}[damage]
    path.write_bytes(damaged)
    with pytest.raises(CommandFailed, match=str(path)):
        list(read_lines(path, kind, lambda _: None))


def test_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    """A file gets its name when it is complete; after a failure, no file is left."""
    path = tmp_path / "x.jsonl"
    with suppress(KeyboardInterrupt), new_file(path) as partial:
        partial.write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with new_file(path) as partial:
        partial.write_bytes(b"whole")
        assert not path.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["x.jsonl"]
    with pytest.raises(CommandFailed, match="No such file"), new_file(tmp_path / "none" / "x.jsonl") as partial:
        partial.write_bytes(b"")


def test_unknown_file_format(tmp_path: Path) -> None:
    """The error for an unknown format lists the supported suffixes."""
    with pytest.raises(CommandFailed, match=r"\.jsonl\.zst or \.parquet"):
        file_format(tmp_path / "x.csv")


# --- Parquet ---


@settings(max_examples=40)
@given(st.lists(records, max_size=20))
def test_parquet_round_trip(tmp_path_factory: pytest.TempPathFactory, made: list[ReadRecord]) -> None:
    """Binary keys, nulls, headers and timestamps in milliseconds survive a round trip."""
    made = [each for each in made if _utf8(each)]
    path = tmp_path_factory.mktemp("parquet") / "x.parquet"
    sink = ParquetSink(path)
    for each in made:
        sink.write(each)
    sink.close()
    assert row_count(path) == len(made)
    records = list(read_parquet(path, lambda _: None))
    assert records == [(each.key, each.value, each.headers, each.partition, each.timestamp_ms) for each in made]


def _utf8(made: ReadRecord) -> bool:
    try:
        return all(name.encode() is not None for name, _ in made.headers)
    except UnicodeEncodeError:
        return False


def test_parquet_has_the_columns_of_sparks_kafka_source(tmp_path: Path) -> None:
    """Files have the columns of Spark's Kafka source, so that Spark can read and write them."""
    import pyarrow.parquet as parquet

    path = tmp_path / "x.parquet"
    sink = ParquetSink(path)
    sink.write(record())
    sink.close()
    assert [(field.name, str(field.type)) for field in parquet.read_schema(path)] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
    ]


def test_parquet_of_other_programs(tmp_path: Path) -> None:
    """Text columns and timestamps of higher resolution are accepted; files without a value column are refused."""
    import pyarrow
    import pyarrow.parquet as parquet

    path = tmp_path / "x.parquet"
    table = pyarrow.table(
        {"value": ["v", None], "timestamp": pyarrow.array([1_234_567, None], pyarrow.timestamp("us", tz="UTC"))}
    )
    parquet.write_table(table, path)
    assert list(read_parquet(path, lambda _: None)) == [
        (None, b"v", (), None, 1234),
        (None, None, (), None, -1),
    ]
    parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(CommandFailed, match="the column value is missing; the columns are a"):
        list(read_parquet(path, lambda _: None))
    path.write_bytes(b"nonsense")
    with pytest.raises(CommandFailed, match=str(path)):
        row_count(path)


def test_parquet_header_names_are_utf8(tmp_path: Path) -> None:
    """Header names that are not UTF-8 are refused, with a hint to use another format."""
    sink = ParquetSink(tmp_path / "x.parquet")
    sink.write(record(headers=(("\udc80", b""),)))
    with pytest.raises(CommandFailed, match=r"use [.]jsonl"):
        sink.close()


def test_missing_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without pyarrow, the error names the package to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CommandFailed, match=r"pip install 'kreplica\[spark\]'"):
        ParquetSink(tmp_path / "x.parquet")


# --- templates, escapes and start positions ---


def test_templates() -> None:
    """Templates support all documented names, escapes and literal braces."""
    fields = "{topic} {partition} {offset} {timestamp_ms} {timestamp_type} {key} {value} {headers}"
    printed = compile_template(f"{fields}\\t{{{{}}}}\\n")
    assert printed(record()) == b"t 2 7 1700000000123 create_time k v a=b\t{}\n"
    assert compile_template("{key_size} {value_size}")(record(key=None)) == b"0 1"
    printed = compile_template("{key}|{value}|{time}")
    assert printed(record(key=None, value=b"\xff\n", timestamp_ms=-1)) == b"null|\xff\n|null"
    assert compile_template("{time}")(record()).startswith(b"2023-11-1")
    assert compile_template("é{value}")(record()) == "év".encode()
    for wrong in ("{nope}", "{value", "{value!r}", "{value:>3}", "{}"):
        with pytest.raises(ValueError, match=r"known|expected|brace"):
            compile_template(wrong)


def test_control_characters_of_records_are_escaped() -> None:
    assert for_terminal(compile_template("{value}\\n"))(record(value=b"a\x1b[2Jb\xff")) == "a\\x1b[2Jb\ufffd\n".encode()


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("7", Start("offset", 7)),
        ("offset:7", Start("offset", 7)),
        ("-10", Start("last", 10)),
        ("timestamp:99", Start("timestamp", 99)),
        ("2027-01-31T08:30:00+01:00", Start("timestamp", 1801380600000)),
    ],
)
def test_start_positions(text: str, start: Start) -> None:
    """A start position is a word, an offset, a number of last records, or a time."""
    assert StartType().convert(text, None, None) == start


def test_invalid_start_positions() -> None:
    """The error for an invalid start position lists the valid forms."""
    with pytest.raises(click.BadParameter, match="expected a time"):
        StartType().convert("yesterday", None, None)
    assert PartitionsType().convert("3,0-2", None, None) == [0, 1, 2, 3]
    for wrong in ("", "a", "1-", "0-999999999"):
        with pytest.raises(click.BadParameter):
            PartitionsType().convert(wrong, None, None)


def test_lines_of_several_files(tmp_path: Path) -> None:
    """Each line is returned with its file and line number; the last one may lack a line feed."""
    (tmp_path / "a").write_bytes(b"1\n\n3")
    (tmp_path / "b").write_bytes(b"4\n")
    lines = list(read_files((tmp_path / "a", tmp_path / "b"), 1.0))
    assert [line for _, line in lines] == [b"1", b"", b"3", b"4"]
    assert lines[2][0] == f"{tmp_path / 'a'}, line 3"


# --- checksums ---


def test_checksums_detect_differences() -> None:
    """Checksums detect missing, changed, moved and differently split records, and timestamps on request."""
    rows = [(0, 1, b"k", b"v", ()), (0, 2, None, b"ab", (("h", b"x"),)), (1, 3, b"", None, ())]

    def sums(changed: list[tuple[object, ...]], *, with_timestamps: bool = True) -> Checksums:
        made = Checksums(with_timestamps=with_timestamps)
        for row in changed:
            made.add(*row)  # type: ignore[arg-type]
        return made

    assert sums(rows).differences(sums(rows)) == []  # type: ignore[arg-type]
    assert sums(rows).count == 3  # type: ignore[arg-type]
    changes = {
        "one is missing": rows[:2],
        "another order": [rows[1], rows[0], rows[2]],
        "another time": [(0, 9, b"k", b"v", ()), *rows[1:]],
        "null is not empty": [*rows[:2], (1, 3, None, None, ())],
        "another split": [(0, 1, b"kv", b"", ()), *rows[1:]],
        "another header": [rows[0], (0, 2, None, b"ab", (("hx", b""),)), rows[2]],
    }
    for name, changed in changes.items():
        assert len(sums(rows).differences(sums(changed))) == 1, name  # type: ignore[arg-type]
    others = [(0, 9, b"k", b"v", ()), *rows[1:]]
    assert sums(rows, with_timestamps=False).differences(sums(others, with_timestamps=False)) == []  # type: ignore[arg-type]
    assert json.loads(record_line(record()))["timestamp_type"] == "create_time"
