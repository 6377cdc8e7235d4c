"""``kreplica log``: the contents of a broker's log files as text and JSON."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from archives import unpack
from click.testing import CliRunner, Result

from kreplica.cli import main
from kreplica.cli.diagnostics import log_verify
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

ARCHIVE = Path(__file__).parents[1] / "storage" / "written_by_kafka" / "kafka-3.9-killed.tar.xz"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the log directory of an Apache Kafka broker that was killed."""
    directory = tmp_path_factory.mktemp("kafka")
    with tarfile.open(ARCHIVE) as packed:
        unpack(packed, directory)
    return directory


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, words)], catch_exceptions=False)


def lines(*words: object) -> list[dict[str, object]]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


class TestDump:
    def test_every_record_of_every_topic(self, unpacked: Path) -> None:
        """The output equals that of Kafka's own reader, offset by offset."""
        for directory in sorted(path for path in unpacked.iterdir() if path.is_dir()):
            entries = lines("dump", directory, "--records")
            records = [entry for entry in entries if entry["entry"] == "record"]
            batches = [entry for entry in entries if entry["entry"] == "batch"]
            assert len(records) == sum(int(str(batch["records"])) for batch in batches) > 0
            assert all(batch["crc_valid"] for batch in batches)

    def test_batches_and_markers_as_text(self, unpacked: Path) -> None:
        """Each batch is printed on one line."""
        file = unpacked / "transactions-0" / f"{0:020}.log"
        out = run("dump", file, "--records").stdout.splitlines()
        assert out[0].startswith("position 0  offsets 0-4  records 5  bytes 151  epoch 0  create time ")
        assert out[0].endswith("  transactional  producer 1 epoch 0 sequence 0-4")
        assert out[1].endswith('  key null  value "committed 0"')
        assert [line.split("  ")[-1] for line in out if "coordinator" in line] == [
            "commit by coordinator epoch 0", "abort by coordinator epoch 0",
        ]  # fmt: skip

    def test_codecs(self, unpacked: Path) -> None:
        """Batches of every codec are decompressed, and the codec is named."""
        entries = lines("dump", unpacked / "codecs-0" / f"{0:020}.log", "--records")
        assert {entry["compression"] for entry in entries if entry["entry"] == "batch"} == {
            "none", "gzip", "snappy", "lz4", "zstd",
        }  # fmt: skip

    def test_indexes_snapshots_and_checkpoints(self, unpacked: Path) -> None:
        """The type of a file is derived from its name."""
        directory = unpacked / "transactions-0"
        (aborted,) = lines("dump", directory / f"{0:020}.txnindex")
        assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (2, 6, 11)
        (time,) = lines("dump", directory / f"{0:020}.timeindex")
        assert (time["entry"], time["offset"]) == ("time", 16)
        producers = lines("dump", directory / f"{17:020}.snapshot")
        assert [producer["producer_id"] for producer in producers] == [1, 2, 3]
        assert lines("dump", directory / "leader-epoch-checkpoint")[0]["start_offset"] == 0
        (metadata,) = lines("dump", directory / "partition.metadata")
        assert len(str(metadata["topic_id"])) == 22
        checkpoint = lines("dump", unpacked / "replication-offset-checkpoint")
        assert {"codecs", "transactions"} <= {row["topic"] for row in checkpoint}
        assert "producer_id 1  epoch 0" in run("dump", directory / f"{17:020}.snapshot").stdout

    def test_start_offset_and_limit(self, unpacked: Path) -> None:
        file = unpacked / "transactions-0" / f"{0:020}.log"
        batches = lines("dump", file, "--from-offset", 6, "--limit", 2)
        assert [batch["base_offset"] for batch in batches] == [6, 11]

    def test_long_values_are_truncated(self, tmp_path: Path) -> None:
        """Long values are truncated, unless --full is used."""
        file = tmp_path / f"{0:020}.log"
        file.write_bytes(build_batch([Record(0, 5, None, b"x" * 500)]))
        assert f'value "{"x" * 100}... (500 characters)"' in run("dump", file, "--records").stdout
        assert f'value "{"x" * 500}"' in run("dump", file, "--records", "--full").stdout

    def test_binary_values(self, tmp_path: Path) -> None:
        """Binary values are printed in base64, as in the admin API."""
        data = build_batch([Record(0, 5, b"\xff\x00", b"a\x1b[2J", (("h", None), ("i", b"\xfe")))])
        (tmp_path / f"{0:020}.log").write_bytes(data)
        _, record = lines("dump", tmp_path / f"{0:020}.log", "--records")
        assert (record["key"], record["key_encoding"]) == ("/wA=", "base64")
        assert (record["value"], record["value_encoding"]) == ("a\x1b[2J", "utf8")
        assert record["headers"] == [
            {"key": "h", "value": None, "encoding": None}, {"key": "i", "value": "/g==", "encoding": "base64"},
        ]  # fmt: skip
        shown = run("dump", tmp_path / f"{0:020}.log", "--records").stdout
        assert 'key base64:/wA=  value "a\\x1b[2J"  h=null  i=base64:/g==' in shown

    def test_damage(self, unpacked: Path, tmp_path: Path) -> None:
        """A wrong checksum and a torn end are reported, with exit status 1; readable records are printed."""
        data = bytearray((unpacked / "transactions-0" / f"{0:020}.log").read_bytes()[:300])
        data[70] ^= 0xFF
        file = tmp_path / f"{0:020}.log"
        file.write_bytes(data)
        done = run("dump", file, "--records")
        assert done.exit_code == 1
        assert done.stdout.splitlines()[0].endswith("  WRONG CRC")
        assert "commit by" in done.stdout
        assert done.stderr == f"kreplica: {file}: position 229: not a complete batch; 71 bytes remain\n"

    @pytest.mark.parametrize(
        ("name", "content", "why"),
        [
            ("notes.txt", b"x", "unknown type of log file"),
            ("0.snapshot", b"x", "not a version 1 snapshot"),
            ("0.index", b"x" * 9, "position 8: 1 bytes after the last complete entry"),
        ],
    )
    def test_other_files_are_refused(self, tmp_path: Path, name: str, content: bytes, why: str) -> None:
        (tmp_path / name).write_bytes(content)
        done = run("dump", tmp_path / name)
        assert done.exit_code == 1
        assert why in done.stderr

    def test_directory_without_a_log(self, tmp_path: Path) -> None:
        """A directory without a log is a usage error."""
        assert run("dump", tmp_path).exit_code == 2


class TestVerify:
    def test_healthy_logs(self, unpacked: Path) -> None:
        """For healthy logs, the output is a summary, and the exit status is 0."""
        done = run("verify", unpacked, "--records")
        assert (done.exit_code, done.stdout) == (
            0, "4 partitions, 13 segments, 69 batches, 21.6 KiB: no problems\n",
        )  # fmt: skip
        (tally,) = lines("verify", unpacked)
        assert (tally["partitions"], tally["problems"]) == (4, 0)

    def test_problems(self, unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each problem is a line with file, position and reason, and the exit status is 1."""
        monkeypatch.setattr(log_verify, "PAUSE_S", 0.0)
        directory = tmp_path / "t-0"
        directory.mkdir()
        data = bytearray((unpacked / "transactions-0" / f"{0:020}.log").read_bytes())
        data[-1] ^= 1
        file = directory / f"{0:020}.log"
        file.write_bytes(data)
        done = run("verify", directory)
        assert done.exit_code == 1
        *problems, tally = done.stdout.splitlines()
        assert f"{file}, position 448: wrong CRC in the batch of offset 12" in problems
        assert tally.endswith("problems")
        row = json.loads(run("verify", directory, "--json").stdout.splitlines()[-2])
        assert row == {
            "file": str(file), "position": 448, "problem": "wrong CRC in the batch of offset 12",
        }  # fmt: skip

    @pytest.mark.parametrize("option", ["--report-gaps", "--no-gaps"])
    def test_gaps(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
        """Missing offsets are a problem only with --report-gaps, or its former name --no-gaps."""
        monkeypatch.setattr(log_verify, "PAUSE_S", 0.0)
        directory = tmp_path / "t-0"
        directory.mkdir()
        batches = [build_batch([Record(offset, 0, None, b"x")], base_offset=offset) for offset in (0, 10)]
        (directory / f"{0:020}.log").write_bytes(b"".join(batches))
        assert run("verify", directory).exit_code == 0
        done = run("verify", directory, option)
        assert done.exit_code == 1
        assert "offsets are missing" in done.stdout

    def test_directory_without_logs(self, tmp_path: Path) -> None:
        """A directory without logs is a usage error."""
        done = run("verify", tmp_path)
        assert done.exit_code == 2
        assert "contains no logs" in done.stderr

    def test_unreadable_file(self, tmp_path: Path) -> None:
        """The error for an unreadable file is one line."""
        (tmp_path / f"{0:020}.log").mkdir()
        done = run("verify", tmp_path)
        assert done.exit_code == 1
        assert done.stderr == f"kreplica: {tmp_path} cannot be read: Is a directory\n"
