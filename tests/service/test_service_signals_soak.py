"""SIGINT and SIGTERM at random times during starts and stops: all processes end, no acknowledged record is lost.

``KREPLICA_SIGNALS=30 KREPLICA_SEED=7 pytest -m soak tests/service/test_service_signals_soak.py`` sends 30 signals.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kreplica.blocking import Cluster, Producer, ProducerOptions
from tests.support.kreplica_command import (
    kreplica_command,
    port_options,
    processes_of,
    run_kreplica,
    waits_for_the_machine,
)

pytestmark = pytest.mark.soak

SIGNALS = int(os.environ.get("KREPLICA_SIGNALS", "200"))
SEED = int(os.environ.get("KREPLICA_SEED", "1"))
IDLE_S_MAX = 2.0
"""Maximum time in which a process neither ends after a signal, nor uses or waits for the CPU or the disk."""

POLL_S_MAX = 0.1
"""Limit on the idle time counted per poll, because on a busy machine this test itself may wait for seconds."""

ENDED_S_MAX = 120.0
READY_S_MAX = 120.0
POLL_S = 0.01
CHECK_EVERY = 20
TOPIC = "orders"


@dataclass
class SignalSoak:
    """A cluster that is started, signalled and stopped repeatedly."""

    data: Path
    options: list[object]
    random: random.Random
    acknowledged: list[str] = field(default_factory=list)
    durations_s: dict[str, list[float]] = field(default_factory=dict)

    def start(self) -> subprocess.Popen[bytes]:
        words = kreplica_command("start", "--data-dir", self.data, *self.options)
        log = (self.data.parent / "log").open("ab")
        with log:
            return subprocess.Popen(words, cwd=self.data.parent, stdout=log, stderr=log)

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> dict:
        deadline_s = time.monotonic() + READY_S_MAX
        while True:
            assert process.poll() is None, self.log()
            assert time.monotonic() < deadline_s, self.log()
            try:
                state = json.loads((self.data / "running.json").read_text())
            except (FileNotFoundError, ValueError):
                state = {}
            if (state.get("pid"), state.get("state")) == (process.pid, "ready"):
                return state
            time.sleep(POLL_S)

    def log(self) -> str:
        return (self.data.parent / "log").read_text(errors="replace")[-5000:]

    def wait_until_ended(self, process: subprocess.Popen[bytes], moment: str) -> None:
        """Wait until no process of the cluster exists, and fail if the processes are idle for too long."""
        begin_s = polled_s = time.monotonic()
        idle_s = 0.0
        before: dict[int, int] = {}
        while True:
            process.poll()
            found = processes_of(self.data)
            if not found:
                break
            now_s = time.monotonic()
            idle_s += min(now_s - polled_s, POLL_S_MAX)
            polled_s = now_s
            if found != before or any(map(waits_for_the_machine, found)):
                before, idle_s = found, 0.0
            assert idle_s < IDLE_S_MAX, f"idle after a signal {moment}: {found}\n{self.log()}"
            assert now_s - begin_s < ENDED_S_MAX, f"did not end after a signal {moment}: {found}\n{self.log()}"
            time.sleep(POLL_S)
        process.wait()
        self.durations_s.setdefault(moment, []).append(time.monotonic() - begin_s)

    def signal_during_start(self, start_s: float) -> None:
        process = self.start()
        try:
            process.wait(self.random.uniform(0.0, 1.2 * start_s))
        except subprocess.TimeoutExpired:
            process.send_signal(self.random.choice((signal.SIGINT, signal.SIGTERM)))
        self.wait_until_ended(process, "during the start")

    def signals_during_stop(self) -> None:
        """Write a record, stop the cluster, and send a second signal while it stops."""
        process = self.start()
        self.write(self.wait_until_ready(process)["bootstrap_servers"][0])
        process.send_signal(self.random.choice((signal.SIGINT, signal.SIGTERM)))
        try:
            process.wait(self.random.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            process.send_signal(self.random.choice((signal.SIGINT, signal.SIGTERM)))
        self.wait_until_ended(process, "during the stop")

    def write(self, address: str) -> None:
        value = f"record {len(self.acknowledged)}"
        with Cluster(address) as cluster, Producer(cluster, ProducerOptions(acks=-1)) as producer:
            producer.send(TOPIC, value.encode())
            producer.flush()
        self.acknowledged.append(value)

    def report(self, title: str) -> None:
        """Print the times from a signal to the end of the last process."""
        print(f"\n{title}, {len(self.acknowledged)} records")
        for moment, durations in self.durations_s.items():
            median, longest = statistics.median(durations), max(durations)
            print(f"ended {moment}: {len(durations)} times, median {median:.2f} s, longest {longest:.2f} s")

    def check(self) -> None:
        """Start the cluster undisturbed, and compare its records with the acknowledged ones."""
        process = self.start()
        address = self.wait_until_ready(process)["bootstrap_servers"][0]
        words = ("consume", TOPIC, "--from", "earliest", "--until-end", "--bootstrap", address)
        done = run_kreplica(*words, cwd=self.data.parent)
        assert done.stdout.splitlines() == self.acknowledged, done.stderr
        process.terminate()
        self.wait_until_ended(process, "without disturbance")


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("options", "brokers"), [([], [1]), (["--processes", "--brokers", 2], [1, 2])], ids=["one", "processes"]
)
def test_signals_at_random_moments(tmp_path: Path, options: list[object], brokers: list[int]) -> None:
    """All processes end without idling, and all acknowledged records are stored once and in order."""
    soak = SignalSoak(tmp_path / "data", [*options, *port_options(2)], random.Random(SEED))
    begin_s = time.monotonic()
    process = soak.start()
    try:
        state = soak.wait_until_ready(process)
        start_s = time.monotonic() - begin_s
        replicas = f"0={','.join(map(str, brokers))}"
        words = ("topic", "create", TOPIC, "--assign", replicas, "--admin", state["admin_url"])
        done = run_kreplica(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        soak.write(state["bootstrap_servers"][0])
        process.terminate()
        soak.wait_until_ended(process, "without disturbance")
        sent = 0
        while sent < SIGNALS:
            if soak.random.random() < 0.7:
                soak.signal_during_start(start_s)
                sent += 1
            else:
                soak.signals_during_stop()
                sent += 2
            if sent % CHECK_EVERY < 2:
                soak.check()
        soak.check()
        soak.report(f"{sent} signals, seed {SEED}, first start {start_s:.2f} s")
        for broker in brokers:
            done = run_kreplica("log", "verify", soak.data / f"broker-{broker}", cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for pid in processes_of(soak.data):
            os.kill(pid, signal.SIGKILL)
