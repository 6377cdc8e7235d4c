"""The ``kreplica simulate`` command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.testing.storms import storm as storms
from tests.support.process_cluster import wait_until

SHORT = ["--option", "seconds=5", "--option", "messages_per_s=20"]


@pytest.fixture
def simulate() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the command as a process."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kreplica.cli", "simulate", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return run


Simulate = Callable[..., "subprocess.CompletedProcess[str]"]


def test_one_seed(simulate: Simulate) -> None:
    """The output shows the plan, the operations, the speed, and the result."""
    done = simulate("--seed", "1", *SHORT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("seed 1: seconds=5 brokers=")
    assert "history:" in done.stdout
    assert "times real time" in done.stdout
    assert done.stdout.rstrip().endswith("clean: no record lost or duplicated, and the cluster recovered")


def test_trace_is_reproducible(simulate: Simulate, tmp_path: Path) -> None:
    """Two runs with the same seed write the same trace."""
    traces = [tmp_path / "a", tmp_path / "b"]
    for trace in traces:
        assert simulate("--seed", "2", *SHORT, "--trace", str(trace)).returncode == 0
    assert traces[0].read_bytes() == traces[1].read_bytes() != b""


def test_many_seeds(simulate: Simulate) -> None:
    """The output shows the number of seeds, the simulated hours, and the speed."""
    done = simulate("--seeds", "1-6", "--jobs", "2", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "6 storms, 6 clean, 0 failed" in done.stdout
    assert "hours per minute" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify either --seed or --seeds"),
        (["--seed", "1", "--seeds", "1-2"], "specify either --seed or --seeds"),
        (["--seeds", "1-"], "--seeds without a last seed requires --minutes"),
        (["--seeds", "9-3"], "'9-3': 3 is smaller than 9"),
        (["--seeds", "all"], "'all': expected 7, 1-200 or 1- (with --minutes)"),
        (["--seeds", "1-3", "--trace", "-"], "--faults, --minimize and --trace require --seed"),
        (["--seed", "1", "--faults", "three"], "'three': expected fault numbers"),
        (["--seed", "1", "--option", "brokers"], "'brokers': expected NAME=VALUE"),
        (["--seed", "1", "--option", "brokers=1"], "brokers=1: at least 3 are needed"),
    ],
)
def test_invalid_arguments(words: list[str], message: str) -> None:
    """Invalid arguments are reported in one line."""
    done = CliRunner().invoke(main, ["simulate", *words])
    assert done.exit_code == 2
    assert message in done.output


def test_usage_errors_exit_with_2(simulate: Simulate) -> None:
    """For a usage error, the exit status is 2, and no traceback is printed."""
    done = simulate("--seeds", "9-3")
    assert done.returncode == 2
    assert "'9-3': 3 is smaller than 9" in done.stderr
    assert "Traceback" not in done.stderr


def test_killed_sweep_leaves_no_process() -> None:
    """If the command is killed with ``kill -9``, its child processes end too."""
    words = [sys.executable, "-m", "kreplica.cli", "simulate", "--seeds", "1-1000", "--jobs", "2"]
    with subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL) as sweep:
        group = sweep.pid

        def child_processes() -> list[int]:
            return [pid for pid in processes_of(group) if pid != sweep.pid]

        wait_until(lambda: len(child_processes()) >= 2, "two child processes of the sweep")
        sweep.kill()
    wait_until(lambda: not child_processes(), "the end of the child processes")


def processes_of(group: int) -> list[int]:
    """Return the live processes of a process group."""
    process_ids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # the process has ended
        if int(fields[2]) == group and fields[0] != "Z":
            process_ids.append(int(path.parent.name))
    return process_ids


def test_failure_prints_the_command_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line for a failed storm is the command that repeats it with the necessary faults."""

    def burst(run: object, random: object) -> None:
        raise RuntimeError("too much")

    for name in list(storms.FAULTS):
        monkeypatch.setitem(storms.FAULTS, name, (burst, 1.0))
    done = CliRunner().invoke(main, ["simulate", "--seed", "1", "--minimize", "--option", "seconds=20"])
    assert done.exit_code == 1
    assert "FAILED: RuntimeError: too much" in done.output
    *_, last = done.output.strip().splitlines()
    assert last.startswith("repeat: kreplica simulate --seed 1 --option seconds=20 --faults ")
    assert "," not in last
    result = CliRunner().invoke(main, ["simulate", "--seeds", "1-3", "--option", "seconds=20"])
    assert result.exit_code == 1
    assert "3 storms, 0 clean, 3 failed" in result.output
    assert "kreplica simulate --seed 3 --option seconds=20   # RuntimeError: too much" in result.output
