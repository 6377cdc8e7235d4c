"""The ``kreplica verify`` command and its output."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from kreplica.cli import main
from kreplica.cli.diagnostics.verify_report import ProgressLine, describe
from kreplica.testing.anomalies import ClientHistory, Expectations, report
from kreplica.testing.verification.verdict import RunSetup, Verdict
from kreplica.testing.verification.verification import Progress

# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def verify() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command as a process."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kreplica.cli", "verify", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def web_server() -> Iterator[int]:
    """Run a server that does not speak the Kafka protocol, and return its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


Verify = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Missing option '--bootstrap'"),
        (["--bootstrap", "127.0.0.1"], "'127.0.0.1': HOST:PORT is expected, for example"),
        (["--bootstrap", "a:1,b:0"], "'b:0': HOST:PORT is expected"),
        (["--bootstrap", "a:1", "--acks", "0"], "Invalid value for '--acks'"),
        (["--bootstrap", "a:1", "--rate", "0"], "Invalid value for '--rate'"),
        (
            ["--bootstrap", "a:1", "--batch", "1000", "--value-size", "2000"],
            "batches of up to 4,078,021 bytes exceed",
        ),
        (["--bootstrap", "a:1", "--config", "max.message.bytes=1k"], "max.message.bytes='1k': expected a number"),
        (["--bootstrap", "a:1", "--config", "x"], "'x': expected NAME=VALUE"),
    ],
)
def test_invalid_arguments(words: list[str], message: str) -> None:
    """For invalid arguments, the exit status is 2."""
    done = CliRunner().invoke(main, ["verify", *words])
    assert done.exit_code == 2
    assert message in done.output


def test_connection_refused(verify: Verify) -> None:
    """If the connection is refused, the error is one line, and the exit status is 2."""
    done = verify("--bootstrap", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kreplica verify: no connection to 127.0.0.1:1: ")
    assert len(done.stderr.splitlines()) == 1


def test_other_server(verify: Verify, web_server: int) -> None:
    """If the server does not speak the Kafka protocol, the error is one line, and the exit status is 2."""
    done = verify("--bootstrap", f"127.0.0.1:{web_server}", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"127.0.0.1:{web_server} does not speak the Kafka protocol" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# --- output -----------------------------------------------------------------------------------------------------------


def text_of(verdict: Verdict) -> str:
    out = io.StringIO()
    describe(verdict, Console(file=out, width=140))
    return out.getvalue()


def verdict(lost: int = 0, *, kept: bool = True, **changes: Any) -> Verdict:
    """Return the verdict on a run that lost this number of records and kept two."""
    history = ClientHistory()
    values = [b"%d" % number for number in range(lost + 2)]
    history.acknowledged(history.sending("producer-0.0", 0, values, 1.0), 0, 1.5)
    history.polled("reader-0", 0, list(enumerate(values))[lost:], 2.0)
    made = Verdict(
        setup=RunSetup(3, "t", 2, 3, 2, -1 if kept else 1),
        load_s=10.0,
        sent=5000,
        acknowledged=5000,
        acknowledged_bytes=2_000_000,
        read=15_000,
        latency_ms={"p50": 1.5, "p99": 20.0, "max": 2500.0},
        longest_silence_s=2.25,
        producer_restarts=0,
        reader_restarts=0,
        errors={},
        settled=True,
        report=report(history, Expectations(kept=kept)),
    )
    return replace(made, **changes)


def test_clean_verdict() -> None:
    """For a clean run, the output shows statistics, a table of all anomalies, and the conclusion."""
    text = text_of(verdict(errors={"ConnectionLost": 3}))
    assert "topic t: 2 partitions, 3 replicas on 3 brokers, min.insync.replicas=2, acks=all" in text
    assert "5,000 of 5,000 records acknowledged in 10 s (500/s, 0.20 MB/s), 15,000 read" in text
    assert "1.5 ms (p50), 20.0 ms (p99), 2,500.0 ms (max); longest pause 2.25 s" in text
    assert "errors that clients retried: ConnectionLost 3" in text
    assert text.rstrip().endswith("clean: every acknowledged record was read once, unchanged and in order")


def test_failed_verdict() -> None:
    """For a failed run, the output shows the number of anomalies and a few examples."""
    text = text_of(verdict(lost=100))
    assert "b'0' was acknowledged to producer-0.0 but never read; other records were read up to 101" in text
    assert text.count("was acknowledged to producer-0.0") == 5
    assert "and 95 more of this kind" in text
    assert text.rstrip().endswith("VIOLATED: 100 x lost write")


def test_permitted_anomalies() -> None:
    """Anomalies that the settings permit are shown but do not fail the run."""
    result = verdict(lost=1, kept=False)
    assert result.clean
    assert "lost write                        1  noteworthy" in text_of(result)
    assert text_of(result).rstrip().endswith("clean: the guarantees of acks=1 held")


@pytest.mark.parametrize(
    ("changes", "conclusion"),
    [
        ({"settled": False, "acknowledged": 4990}, "VIOLATED: 10 records were never acknowledged"),
        ({"settled": False}, "VIOLATED: not every reader reached the end"),
    ],
)
def test_cluster_does_not_recover(changes: dict[str, Any], conclusion: str) -> None:
    """If the cluster does not recover, the run fails."""
    assert text_of(verdict(**changes)).rstrip().endswith(conclusion)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"producer_restarts": 2}, "producer IDs replaced (their records were unknown to a broker): 2"),
        ({"reader_restarts": 1}, "reader positions reset because they were beyond the log end: 1"),
        ({"deletion_error": "the topic t cannot be removed: NOT_CONTROLLER"}, "the topic t cannot be removed"),
    ],
)
def test_rare_events(changes: dict[str, Any], line: str) -> None:
    """Rare events have a line only if they happened."""
    assert line in text_of(verdict(**changes))
    assert line not in text_of(verdict())


def progress(at_s: float, phase: str = "writing") -> Progress:
    return Progress(at_s, phase, sent=1200, acknowledged=1000, unread=7, silence_s=0.5, errors=3)


def test_progress_in_a_file() -> None:
    """A line is written every five seconds and with every phase."""
    out = io.StringIO()
    with ProgressLine(Console(file=out)) as line:
        for tick in range(48):
            line.show(progress(tick / 4))
        line.show(progress(12.0, "comparing"))
    assert [each.split(",")[0] for each in out.getvalue().splitlines()] == [
        "    0 s  writing: 1",
        "    5 s  writing: 1",
        "   10 s  writing: 1",
        "   12 s  comparing: 1",
    ]


def test_progress_on_a_terminal() -> None:
    """A single line is updated, and removed at the end."""
    out = io.StringIO()
    with ProgressLine(Console(file=out, force_terminal=True, width=140)) as line:
        line.show(progress(1.0))
        line.show(progress(2.0))
    assert "1 s  writing: 1,000 of 1,200 acknowledged, 7 unread, longest pause 0.5 s" in out.getvalue()
    assert out.getvalue().count("\n") <= 1
