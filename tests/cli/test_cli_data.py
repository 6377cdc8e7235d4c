"""``kreplica produce``, ``consume``, and ``topic export``, ``import`` and ``copy`` on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_admin import FakeAdmin, run_here, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions, Reader, ReaderOptions
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.blocking.reader import ReadRecord
from kreplica.cli import main
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.offsets import EARLIEST
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

numbers = count(1)


@pytest.fixture(scope="module")
def shared(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    """A cluster that no test in this module damages."""
    with kafka_cluster_factory(3) as cluster:
        yield cluster


@pytest.fixture
def topic(shared: KafkaCluster) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(numbers)}"
    shared.create_topic(name, 3)
    return name


@pytest.fixture
def run(shared: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command in an empty directory and checks its exit status."""
    monkeypatch.chdir(tmp_path)

    def run_command(*words: object, status: int = 0) -> Result:
        environment = {"KREPLICA_BOOTSTRAP": shared.bootstrap_servers}
        result = CliRunner().invoke(main, [str(word) for word in words], env=environment)
        assert result.exit_code == status, result.output
        return result

    return run_command


@pytest.fixture
def start(shared: KafkaCluster) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts a command as a process, which can be interrupted."""

    def start_command(*words: object, bootstrap: str = shared.bootstrap_servers) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", "kreplica.cli", *map(str, words)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, "KREPLICA_BOOTSTRAP": bootstrap},
        )

    return start_command


def read(bootstrap: str, topic: str, isolation: Isolation = Isolation.READ_COMMITTED) -> list[ReadRecord]:
    """Return all records in order of partition and offset."""
    with Cluster(bootstrap) as cluster:
        partitions = topic_partitions(cluster, topic)
        ends = end_offsets(cluster, partitions)
        with Reader(
            cluster, dict.fromkeys(partitions, EARLIEST), ends=ends, options=ReaderOptions(isolation=isolation)
        ) as reader:
            return sorted(reader.records(), key=lambda record: (record.partition, record.offset))


def write(bootstrap: str, topic: str, values: int, size: int = 10, **options: Any) -> None:
    """Write records to all three partitions in turn."""
    with Cluster(bootstrap) as cluster, Producer(cluster, ProducerOptions(**options)) as producer:
        for number in range(values):
            producer.send(topic, b"%0*d" % (size, number), partition=number % 3, timestamp_ms=1000 + number)


def contents(records: list[ReadRecord]) -> list[tuple[object, ...]]:
    """Return all fields of the records except topic and offset."""
    return [(each.partition, each.timestamp_ms, each.key, each.value, each.headers) for each in records]


# --- produce ---


def test_lines_become_records(shared: KafkaCluster, topic: str, run: Callable[..., Result], tmp_path: Path) -> None:
    """Each line becomes a record, optionally with key and headers; the partition and the codec can be chosen."""
    (tmp_path / "lines").write_bytes(b"anna:1\nbert:2:3\n\n:\n".replace(b"\n\n", b"\n"))
    more = ("--header", "a=b", "--partition", 1, "--codec", "zstd")
    run("produce", topic, "--file", "lines", "--key-separator", ":", *more)
    records = read(shared.bootstrap_servers, topic)
    assert [(each.key, each.value) for each in records] == [(b"anna", b"1"), (b"bert", b"2:3"), (b"", b"")]
    assert {(each.partition, each.headers) for each in records} == {(1, (("a", b"b"),))}


def test_json_lines_become_records(
    shared: KafkaCluster, topic: str, run: Callable[..., Result], tmp_path: Path
) -> None:
    """``produce --json`` accepts the output of ``consume --json``."""
    lines = [
        {"key": "k", "value": None, "partition": 2, "timestamp_ms": 5, "headers": {"h": "x"}},
        {"value": "/w==", "value_encoding": "base64", "partition": 0},
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("produce", topic, "--file", "lines", "--json")
    first, second = read(shared.bootstrap_servers, topic)
    assert (first.partition, first.value) == (0, b"\xff")
    assert (second.partition, second.timestamp_ms, second.key, second.value) == (2, 5, b"k", None)
    (tmp_path / "again").write_text(run("consume", topic, "--json").stdout)
    run("produce", topic, "--file", "again", "--json")
    assert len(read(shared.bootstrap_servers, topic)) == 4


@pytest.mark.parametrize(
    ("line", "options", "why"),
    [
        ("nokey", ("--key-separator", ":"), "lines, line 2: the key separator ':' is missing"),
        ("nonsense", ("--json",), "lines, line 2: invalid JSON"),
    ],
)
def test_invalid_line(
    shared: KafkaCluster,
    topic: str,
    run: Callable[..., Result],
    tmp_path: Path,
    line: str,
    options: tuple[str, ...],
    why: str,
) -> None:
    """The error for an invalid line names the line and the reason; the lines before it are written."""
    good = '{"value": "v"}' if options == ("--json",) else "k:v"
    (tmp_path / "lines").write_text(f"{good}\n{line}\n{good}\n")
    result = run("produce", topic, "--file", "lines", *options, status=1)
    assert why in result.output
    assert "(1 record written)" in result.output
    assert len(read(shared.bootstrap_servers, topic)) == 1


def test_invalid_options(run: Callable[..., Result], topic: str) -> None:
    """Contradictory and missing options are reported before any record is written."""
    assert "cannot be combined" in run("produce", topic, "--json", "--key-separator", ":", status=2).output
    assert "HOST:PORT is expected" in run("produce", topic, "--bootstrap", "nonsense", status=2).output
    assert "there is no topic 'nope'" in run("consume", "nope", status=1).output
    assert "create it with `kreplica topic create nope`" in run("produce", "nope", status=1).output
    assert "it has 3 partitions, numbered from 0" in run("consume", topic, "--partitions", "3", status=2).output
    assert "cannot be copied to itself" in run("topic", "copy", topic, topic, status=2).output


def test_line_is_written_without_waiting_for_the_next(
    shared: KafkaCluster, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Interactive input is written line by line; Ctrl-C prints the number of written records."""
    with start("produce", topic) as process:
        assert process.stdin is not None
        for count in (1, 2):
            process.stdin.write(b"typed\n")
            process.stdin.flush()
            assert [each.value for each in shared.records(topic, at_least=count)] == [b"typed"] * count
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        # The second line may be in the log even if its response is missing; the first was acknowledged before.
        assert process.stderr.read() in (
            b"kreplica: interrupted: 1 record written\n",
            b"kreplica: interrupted: 2 records written\n",
        )


# --- consume ---


def test_start_and_end_positions(shared: KafkaCluster, topic: str, run: Callable[..., Result]) -> None:
    """Options select a start by offset, time or number of last records, partitions, and an end."""
    write(shared.bootstrap_servers, topic, 30, size=1)

    def consume(*options: object) -> list[str]:
        return run("consume", topic, *options).stdout.split()

    assert sorted(map(int, consume())) == list(range(30))
    assert consume("--partitions", "1") == [str(number) for number in range(1, 30, 3)]
    assert consume("--partitions", "0", "--from", "8") == ["24", "27"]
    assert sorted(consume("--from", "-1")) == ["27", "28", "29"]
    assert sorted(consume("--from", "timestamp:1027")) == ["27", "28", "29"]
    assert consume("--from", "2100-01-01") == []
    assert len(consume("--count", "4")) == 4
    assert consume("--format", "{partition}/{offset}\\n", "--partitions", "2", "--count", "2") == ["2/0", "2/1"]


def test_committed_records_only(shared: KafkaCluster, topic: str, run: Callable[..., Result]) -> None:
    """Records of an aborted transaction are printed only on request."""
    options = ProducerOptions(transactional_id=topic)
    with Cluster(shared.bootstrap_servers) as cluster, Producer(cluster, options) as producer:
        for value in (b"good", b"bad"):
            producer.begin()
            producer.send(topic, value, partition=0)
            if value == b"good":
                producer.commit()
            else:
                producer.flush()
                producer.abort()
    assert run("consume", topic).stdout.split() == ["good", "bad"]
    assert run("consume", topic, "--read-committed").stdout.split() == ["good"]


def test_follow_until_interrupted(
    shared: KafkaCluster, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Records are printed as they arrive; Ctrl-C ends the command with a message on standard error."""
    write(shared.bootstrap_servers, topic, 1)
    with start("consume", topic, "--follow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0000000000\n"
        write(shared.bootstrap_servers, topic, 1)
        assert process.stdout.readline() == b"0000000000\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"kreplica: interrupted: 2 records read\n"


def test_closed_pipe_is_not_an_error(
    shared: KafkaCluster, topic: str, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """``consume | head`` ends without an error message."""
    write(shared.bootstrap_servers, topic, 30_000, size=100)
    with start("consume", topic) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


# --- export and import ---


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
def test_topic_is_restored_from_a_file(shared: KafkaCluster, topic: str, run: Callable[..., Result], kind: str) -> None:
    """Files of every format have all records; the new topic has as many partitions as the file."""
    write(shared.bootstrap_servers, topic, 1500, codec=Codec.LZ4)
    file = f"{topic}.{kind}"
    assert "1,500 records" in run("topic", "export", topic, file).output
    assert "already exists" in run("topic", "export", topic, file, status=1).output
    run("topic", "export", topic, file, "--force")
    assert "create it with --create" in run("topic", "import", f"{topic}-2", file, status=1).output
    run("topic", "import", f"{topic}-2", file, "--create", "--config", "retention.ms=-1", "--codec", "gzip")
    assert contents(read(shared.bootstrap_servers, f"{topic}-2")) == contents(read(shared.bootstrap_servers, topic))


blobs = st.none() | st.binary(max_size=40) | st.integers(10_000, 60_000).map(bytes)
header_lists = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), blobs), max_size=3)
rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 10**13), blobs, blobs, header_lists.map(tuple)), max_size=30
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sampled_from(Codec), st.sampled_from(["jsonl", "jsonl.gz", "jsonl.zst", "parquet"]))
def test_all_record_contents_are_restored(
    shared: KafkaCluster, run: Callable[..., Result], made: list[Any], codec: Codec, kind: str
) -> None:
    """Binary keys, nulls, empty headers, large records and any timestamps are restored, with every codec."""
    topic = f"any-{next(numbers)}"
    shared.create_topic(topic, 3)
    with Cluster(shared.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions(codec=codec)) as producer:
        for partition, timestamp_ms, key, value, headers in made:
            producer.send(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
    run("topic", "export", topic, f"{topic}.{kind}")
    run(
        "topic", "import", f"{topic}-2", f"{topic}.{kind}", "--create", "--partitions", 3, "--codec", codec.name.lower()
    )
    copied = contents(read(shared.bootstrap_servers, f"{topic}-2"))
    assert copied == contents(read(shared.bootstrap_servers, topic))
    assert copied == sorted(made, key=lambda row: row[0])


def test_files_that_do_not_fit(topic: str, run: Callable[..., Result], tmp_path: Path) -> None:
    """The error names the first record that cannot be written, and a remedy."""
    (tmp_path / "a.jsonl").write_text('{"value": "v", "partition": 0}\n{"value": "v", "partition": 7}\n')
    output = run("topic", "import", topic, "a.jsonl", status=1).output
    assert f"a.jsonl, line 2: the record has partition 7, but {topic} has 3 partitions (1 record written)" in output
    run("topic", "import", topic, "a.jsonl", "--by-key")
    (tmp_path / "b.jsonl").write_text('{"value": 1}\n')
    output = run("topic", "import", topic, "b.jsonl", status=1).output
    assert "b.jsonl, line 1: value: expected a string or null" in output
    assert "unknown file format" in run("topic", "export", topic, "c.csv", status=1).output


def test_interrupted_export_leaves_nothing(
    shared: KafkaCluster, topic: str, start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """An export is renamed to its final name when complete, so that an interrupted one leaves no file."""
    write(shared.bootstrap_servers, topic, 60_000)
    with start("topic", "export", topic, tmp_path / "t.jsonl") as process:
        while not (names := [each.name for each in tmp_path.iterdir()]):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert b"t.jsonl was not written" in process.stderr.read()
    assert names[0].endswith(".partial")
    assert list(tmp_path.iterdir()) == []


# --- copy ---


def test_copy_is_verified(shared: KafkaCluster, topic: str, run: Callable[..., Result]) -> None:
    """All records are copied in order, with timestamps; a second copy is appended and verified separately."""
    write(shared.bootstrap_servers, topic, 3000)
    for _ in range(2):
        output = run("topic", "copy", topic, f"{topic}-2", "--create", "--verify", "--codec", "snappy").output
        assert "3,000 records read back: counts and checksums match" in output
    copied = contents(read(shared.bootstrap_servers, f"{topic}-2"))
    wanted = contents(read(shared.bootstrap_servers, topic))
    assert [row for row in copied if row[0] == 1] == [row for row in wanted if row[0] == 1] * 2


def test_copy_to_another_number_of_partitions(shared: KafkaCluster, topic: str, run: Callable[..., Result]) -> None:
    """A copy to fewer partitions is refused unless keys may be assigned to partitions again."""
    write(shared.bootstrap_servers, topic, 300)
    shared.create_topic(f"{topic}-small", 1)
    assert f"has 3 partitions and {topic}-small has 1" in run("topic", "copy", topic, f"{topic}-small", status=1).output
    assert "match" in run("topic", "copy", topic, f"{topic}-small", "--by-key", "--verify").output
    assert len(read(shared.bootstrap_servers, f"{topic}-small")) == 300


def test_topic_with_log_append_time(shared: KafkaCluster, topic: str, run: Callable[..., Result]) -> None:
    """With LogAppendTime, the copies have other timestamps, which is not reported as a difference."""
    write(shared.bootstrap_servers, topic, 30)
    setting = "message.timestamp.type=LogAppendTime"
    assert "match" in run("topic", "copy", topic, f"{topic}-2", "--create", "--config", setting, "--verify").output


@pytest.mark.parametrize("transactional", [False, True], ids=["idempotent", "transactional"])
def test_broker_dies_during_a_copy(
    kafka_cluster: KafkaCluster, start: Callable[..., subprocess.Popen[bytes]], transactional: bool
) -> None:
    """If leaders die in both clusters during a copy, no record is lost, duplicated or reordered."""
    for name in ("t", "u"):
        kafka_cluster.create_topic(name, 3, min_insync_replicas=2)
    write(kafka_cluster.bootstrap_servers, "t", 40_000, size=100)
    victim = kafka_cluster.leader_of("u", 1)
    options = ("--transactional", "id") if transactional else ()
    with start("topic", "copy", "t", "u", "--verify", *options, bootstrap=kafka_cluster.bootstrap_servers) as process:
        while sum(kafka_cluster.end_offsets("u").values()) < 5000:
            assert process.poll() is None
        kafka_cluster.kill(victim)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert b"counts and checksums match" in output
    copied, wanted = (contents(read(kafka_cluster.bootstrap_servers, name)) for name in ("u", "t"))
    assert copied == wanted


def test_transactional_copy_resumes(
    shared: KafkaCluster, topic: str, start: Callable[..., subprocess.Popen[bytes]], run: Callable[..., Result]
) -> None:
    """A copy that is killed and restarted with the same transactional ID loses and duplicates no record."""
    write(shared.bootstrap_servers, topic, 48_000, size=100)
    shared.create_topic(f"{topic}-2", 3)
    for sign in (signal.SIGKILL, signal.SIGINT):
        begun = sum(shared.end_offsets(f"{topic}-2").values())
        with start("topic", "copy", topic, f"{topic}-2", "--transactional", topic) as process:
            while sum(shared.end_offsets(f"{topic}-2").values()) < begun + 11_000:
                assert process.poll() is None
            process.send_signal(sign)
            process.wait(20)
    run("topic", "copy", topic, f"{topic}-2", "--transactional", topic, "--verify")
    write(shared.bootstrap_servers, topic, 3)
    assert "3 records, " in run("topic", "copy", topic, f"{topic}-2", "--transactional", topic).output
    copied, wanted = (contents(read(shared.bootstrap_servers, name)) for name in (f"{topic}-2", topic))
    assert copied == wanted


def test_copy_between_clusters(
    shared: KafkaCluster, topic: str, kafka_cluster: KafkaCluster, run: Callable[..., Result]
) -> None:
    """A topic can be copied to another cluster, under another name."""
    write(shared.bootstrap_servers, topic, 300)
    to = ("--to-bootstrap", kafka_cluster.bootstrap_servers, "--from-bootstrap", shared.bootstrap_servers)
    assert "match" in run("topic", "copy", topic, "far", *to, "--create", "--verify", "--transactional", "x").output
    assert contents(read(kafka_cluster.bootstrap_servers, "far")) == contents(read(shared.bootstrap_servers, topic))
    assert "0 records, " in run("topic", "copy", topic, "far", *to, "--transactional", "x").output


# --- which cluster ----------------------------------------------------------------------------------------------------


@pytest.fixture
def admin(shared: KafkaCluster) -> Iterator[FakeAdmin]:
    """The admin API of the shared cluster, with only the requests that data commands send."""
    addresses = [each.split(":") for each in shared.bootstrap_servers.split(",")]
    rows = [
        {"broker_id": 7, "live": False, "endpoints": []},
        *(
            {"live": True, "endpoints": [f"INTERNAL://127.0.0.1:{n}", f"PLAINTEXT://{host}:{port}"]}
            for n, (host, port) in enumerate(addresses, 1)
        ),
    ]
    with serving() as fake:
        fake.answers["GET /v1/brokers"] = {"brokers": rows, "next": None}
        yield fake


NOWHERE = "127.0.0.1:1"


@pytest.fixture
def line(tmp_path: Path) -> tuple[str, str]:
    """Return options that make ``produce`` write one record."""
    (tmp_path / "line").write_text("a line\n")
    return "--file", str(tmp_path / "line")


def run_with_environment(environment: dict[str, str], *words: str) -> Result:
    """Run a command with only these of the variables that select a cluster."""
    variables = {"KREPLICA_BOOTSTRAP": None, "KREPLICA_ADMIN": None, "KREPLICA_TOKEN_FILE": None}
    return CliRunner().invoke(main, words, env={**variables, **environment}, obj=run_here)


def test_admin_api_provides_the_brokers(
    admin: FakeAdmin, shared: KafkaCluster, topic: str, line: tuple[str, str], tmp_path: Path
) -> None:
    """With an admin API, data commands use its cluster, not a broker on the default port."""
    assert run_with_environment({"KREPLICA_ADMIN": admin.url}, "produce", topic, *line).exit_code == 0
    assert admin.last.query == {}, "the admin API refuses unknown parameters"
    assert run_with_environment({}, "produce", topic, "--admin", admin.url, *line).exit_code == 0
    assert [record.value for record in read(shared.bootstrap_servers, topic)] == [b"a line"] * 2
    consumed = run_with_environment(
        {"KREPLICA_ADMIN": admin.url}, "consume", topic, "--from", "earliest", "--until-end"
    )
    assert consumed.output == "a line\n" * 2
    assert (
        run_with_environment(
            {"KREPLICA_ADMIN": admin.url}, "topic", "export", topic, str(tmp_path / "out.jsonl")
        ).exit_code
        == 0
    )
    assert (
        run_with_environment({"KREPLICA_ADMIN": admin.url}, "topic", "copy", topic, f"{topic}-2", "--create").exit_code
        == 0
    )
    assert len(read(shared.bootstrap_servers, f"{topic}-2")) == 2


def test_precedence_of_addresses(admin: FakeAdmin, shared: KafkaCluster, topic: str, line: tuple[str, str]) -> None:
    """Broker addresses take precedence over the admin API, and options over variables."""
    right = shared.bootstrap_servers
    admin_of_another = "http://127.0.0.1:1"
    for environment, words in (
        ({"KREPLICA_ADMIN": admin_of_another, "KREPLICA_BOOTSTRAP": right}, ()),
        ({"KREPLICA_ADMIN": admin_of_another}, ("--bootstrap", right)),
        ({}, ("--bootstrap", right, "--admin", admin_of_another)),
        ({"KREPLICA_BOOTSTRAP": NOWHERE}, ("--admin", admin.url)),
    ):
        result = run_with_environment(environment, "produce", topic, *words, *line)
        assert result.exit_code == 0, result.output
    assert len(read(right, topic)) == 4


def test_admin_api_without_brokers(admin: FakeAdmin, topic: str, line: tuple[str, str]) -> None:
    """If the admin API reports no live brokers, the command fails instead of using another cluster."""
    admin.answers["GET /v1/brokers"] = {"brokers": [], "next": None}
    result = run_with_environment({"KREPLICA_ADMIN": admin.url}, "produce", topic, *line)
    assert result.exit_code == 1
    assert "reports no live brokers: use --bootstrap" in result.output
    result = run_with_environment({"KREPLICA_ADMIN": "http://127.0.0.1:1"}, "produce", topic, *line)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
