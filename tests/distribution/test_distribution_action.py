"""The composite action for CI jobs starts a cluster and reports its addresses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from manifests import ROOT, documents

from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from tests.support.server_process import free_ports

ACTION = ROOT / "packaging" / "github-action" / "action.yml"


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """The temporary directory of a runner, in which kreplica is installed."""
    (tmp_path / "kreplica").mkdir()
    (tmp_path / "kreplica" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def action() -> dict[str, Any]:
    (document,) = documents(ACTION)
    return document


def run_step(runner: Path, name: str, **inputs: object) -> subprocess.CompletedProcess[str]:
    """Run one step of the action as a runner does."""
    values = {key: str(row["default"]) for key, row in action()["inputs"].items()}
    values |= {key.replace("_", "-"): str(value) for key, value in inputs.items()}
    (step,) = [each for each in action()["runs"]["steps"] if each["name"] == name]
    assert step["shell"] == "bash"
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for key, text in step["env"].items()
    }
    assert "${{" not in step["run"], "an expression in a script would let an input run commands"
    environment = {**os.environ, "RUNNER_TEMP": str(runner), "GITHUB_OUTPUT": str(runner / "output"), **variables}
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_cluster_in_a_job(runner: Path) -> None:
    """The outputs of the step are the addresses of running brokers."""
    first, _, admin = free_ports(3, consecutive=2)
    done = run_step(runner, "Start the cluster", brokers=2, port=first, admin_port=admin)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        outputs = dict(line.split("=", 1) for line in (runner / "output").read_text().splitlines())
        assert set(action()["outputs"]) == set(outputs)
        assert outputs["bootstrap-servers"] == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
        with Cluster(outputs["bootstrap-servers"]) as cluster:
            create_topic(cluster, "greetings", 1, 2)
            with Producer(cluster) as producer:
                producer.send("greetings", b"hello")
            assert len(cluster.view.brokers) == 2
        with urllib.request.urlopen(f"{outputs['admin-url']}/health/ready") as response:
            assert response.status == 200
    finally:
        stop = [runner / "kreplica/bin/kreplica", "stop", "--data-dir", runner / "kreplica-data"]
        assert subprocess.run(stop, capture_output=True, check=False).returncode == 0


def test_a_failed_start_is_reported(runner: Path) -> None:
    """If the cluster does not start, the step fails with the error of the command."""
    done = run_step(runner, "Start the cluster", brokers=1, port="nonsense")
    assert done.returncode != 0
    assert "is not a port" in done.stderr


def test_the_package_is_installed(runner: Path) -> None:
    """The first step creates an environment and installs the package into it."""
    (runner / "kreplica" / "bin").unlink()
    programs = runner / "programs"
    programs.mkdir()
    installed = '#!/bin/sh\necho "$@" > "$RUNNER_TEMP/installed"\n'
    python = f'#!/bin/sh\nmkdir -p "$3/bin" && cp "{programs}/pip" "$3/bin/python"\n'
    for name, text in (("python", python), ("pip", installed)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path, os.environ["PATH"] = os.environ["PATH"], f"{programs}:{os.environ['PATH']}"
    try:
        done = run_step(runner, "Install kreplica", package="kreplica==0.1.0")
    finally:
        os.environ["PATH"] = path
    assert done.returncode == 0, done.stderr
    assert (runner / "installed").read_text() == "-m pip install --quiet kreplica==0.1.0\n"
