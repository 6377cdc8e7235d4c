"""rdkafka's own tests in Rust, and librdkafka's in C, with broker processes; needs Cargo and C and C++ compilers.

Both are built from source, which takes minutes, so this is part of the soak.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import SINGLE_BROKER_SETTINGS, run_cluster
from crates import LIBRDKAFKA_SUITE, RDKAFKA_SUITE, librdkafka_outcomes, rust_outcomes

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

BUILD_TIME_S_MAX = 1200
RUN_TIME_S_MAX = 1500
KAFKA_VERSION = "3.9.1"
"""The version of Kafka that the brokers' protocol corresponds to."""

RACE = "test_base_producer_timeout"
"""Passes only if a broker takes more than 100 ms to create a topic: it is not run."""


def skip_unless_installed(*programs: str) -> None:
    """Skip the test if a program is not installed."""
    if absent := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"not installed: {', '.join(absent)}")


def run(
    command: list[str],
    directory: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    errors: int = subprocess.STDOUT,
) -> str:
    """Return the output of a command, whatever its exit status.

    :param errors: target of its standard error.
    """
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    return done.stdout


def test_rdkafkas_own_suite_passes(tmp_path: Path) -> None:
    """The integration tests of the Rust client pass on one broker; the exceptions are listed."""
    skip_unless_installed("cargo", "cmake", "gcc", "g++", "make")
    crate = tmp_path / "rdkafka"
    RDKAFKA_SUITE.unpack(crate)
    tests = ["cargo", "test", "--locked", "--no-fail-fast", "--test", "*"]
    built = run([*tests, "--no-run"], crate, BUILD_TIME_S_MAX)
    assert "Executable tests/test_transactions.rs" in built, built[-6000:]
    with run_cluster(tmp_path / "broker", range(1), {**SINGLE_BROKER_SETTINGS, "num.partitions": 3}) as cluster:
        environment = {"KAFKA_HOST": cluster.bootstrap_servers, "KAFKA_VERSION": KAFKA_VERSION, "RUST_LOG": "off"}
        output = run([*tests, "--", "--test-threads=2", "--skip", RACE], crate, RUN_TIME_S_MAX, environment)
        outcomes = rust_outcomes(output)
        # As below: time limits that a busy machine exceeds.
        if unexpected := RDKAFKA_SUITE.failed(outcomes):
            names = [name.partition("::")[2] for name in unexpected]
            more = run([*tests, "--", "--test-threads=1", "--exact", *names], crate, RUN_TIME_S_MAX, environment)
            outcomes |= {name: outcome for name, outcome in rust_outcomes(more).items() if name in unexpected}
            output += more
        differences = list(RDKAFKA_SUITE.differences(outcomes))
        assert not differences, "\n".join([*differences, output[-8000:], cluster.output_ends()])


def test_librdkafkas_own_suite_passes(tmp_path: Path) -> None:
    """The tests of the C client that need brokers pass on three of them, in quick mode; the exceptions are listed."""
    skip_unless_installed("cargo", "gcc", "g++", "make")
    crate = tmp_path / "rdkafka-sys"
    LIBRDKAFKA_SUITE.unpack(crate)
    source = crate / "librdkafka"
    options = [f"--disable-{name}" for name in ("gssapi", "ssl", "curl", "zstd")]
    built = run(["bash", "./configure", *options], source, BUILD_TIME_S_MAX)
    built += run(["make", "-j2", "libs"], source, BUILD_TIME_S_MAX)
    built += run(["make", "-j2", "-C", "tests", "build"], source, BUILD_TIME_S_MAX)
    tests = source / "tests"
    assert (tests / "test-runner").exists(), built[-6000:]
    # Tests assume that all members of a group join within its first rebalance.
    with run_cluster(tmp_path / "brokers", range(1, 4), {"group.initial.rebalance.delay.ms": 3000}) as cluster:
        (tests / "test.conf").write_text(f"metadata.broker.list={cluster.bootstrap_servers}\ntest.topic.random=true\n")
        environment = {
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "LD_LIBRARY_PATH": f"{source}/src:{source}/src-cpp",
        }
        outcomes, output = run_librdkafka(tests, environment, "-p4")
        # Some tests wait only a few seconds for operations that are slower on a busy machine.
        if unexpected := LIBRDKAFKA_SUITE.failed(outcomes):
            again, more = run_librdkafka(tests, {**environment, "TESTS": ",".join(unexpected)}, "-p1")
            outcomes |= {name: outcome for name, outcome in again.items() if name in unexpected}
            output += more
        differences = list(LIBRDKAFKA_SUITE.differences(outcomes))
        assert not differences, "\n".join([*differences, output[-8000:], cluster.output_ends()])


def run_librdkafka(tests: Path, environment: Mapping[str, str], parallel: str) -> tuple[dict[str, str], str]:
    """Run librdkafka's test runner in its directory, without tests that need no broker; return outcomes and output."""
    # The runner aborts after failures, so its table must not wait in a buffer.
    command = ["stdbuf", "--output=L", "./test-runner", "-L", "-Q", "-E", parallel]
    with open(tests / "test-runner.log", "ab") as log:
        output = run(command, tests, RUN_TIME_S_MAX, environment, log.fileno())
    return librdkafka_outcomes(output), output
