"""The container image is built, and runs a broker without root, capabilities or a writable file system.

The image is built with podman, docker or buildah. buildah cannot run containers in every sandbox, so there the image
runs in namespaces made by ``unshare``. If no registry can be reached, debootstrap makes the base of the image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kreplica import __version__
from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from kreplica.testing.container import KreplicaContainer

ROOT = Path(__file__).parents[2]
TAG = f"localhost/kreplica-test:{__version__}"
LOCAL_BASE = "localhost/kreplica-test-base:latest"
SUITE = "trixie"
ENGINES = ("podman", "docker")
HOST_FILES = ("/etc/ssl/certs", "/etc/pip.conf")
"""Files of this machine that the build reads, so that pip reaches the same package index."""

SESSION_SCRIPT = """
set -eu
"$@" > /tmp/log 2>&1 &
broker=$!
until kreplica-health > /tmp/health; do
    kill -0 $broker 2> /dev/null || { cat /tmp/log; exit 1; }
    sleep 0.2
done
cat /tmp/health
kreplica topic create greetings --partitions 2 > /dev/null
echo hello | kreplica produce greetings 2> /dev/null
kreplica consume greetings
id -u
touch /opt/kreplica/written 2> /dev/null && echo writable
grep -E '^Cap(Eff|Bnd)' /proc/self/status | cut -f 2
kill -TERM $broker
wait $broker || true
grep -c 'stopped' /tmp/log > /dev/null && echo stopped
"""
"""Script that starts the command of the image, runs commands as ``docker exec`` does, and stops the broker."""

NAMESPACE_SCRIPT = """
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev"
mount -t tmpfs -o mode=1777 tmpfs "$0/tmp"
mount -t tmpfs -o mode=750,uid=10001,gid=10001 tmpfs "$0/var/lib/kreplica"
ip link set lo up
exec chroot "$0" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --no-new-privs env -i "$@"
"""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)


def run_checked(*words: object, **options: Any) -> str:
    done = run(*words, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class Builder:
    """A program that builds images.

    :param command: the program, with the options that all its commands need.
    """

    def __init__(self, *command: str) -> None:
        self.command = command

    @property
    def is_engine(self) -> bool:
        """True if the program also runs containers."""
        return self.command[0] in ENGINES

    def __call__(self, *words: object) -> str:
        return run_checked(*self.command, *words)

    def make_base(self, directory: Path) -> str:
        """Return the base of the image: the usual one, or a Debian with Python if it cannot be downloaded."""
        default = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
        assert default is not None
        if run(*self.command, "pull", default[1]).returncode == 0:
            return default[1]
        if self.is_engine or shutil.which("debootstrap") is None or os.geteuid() != 0:
            pytest.skip(f"{default[1]} cannot be downloaded; buildah, debootstrap and root could make another base")
        packages = "python3,python3-venv,ca-certificates"
        words = ("--variant=minbase", f"--include={packages}", SUITE, directory, "http://deb.debian.org/debian")
        run_checked("debootstrap", *words, "/usr/share/debootstrap/scripts/sid")
        container = self("from", "scratch").strip()
        run_checked("cp", "-a", f"{directory}/.", self("mount", container).strip())
        self("commit", "--rm", container, LOCAL_BASE)
        return LOCAL_BASE


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    for name in ENGINES:
        if shutil.which(name) and run(name, "info").returncode == 0:
            yield Builder(name)
            return
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("no podman or docker runs here, and buildah is not installed (or not run by root)")
    store = tmp_path_factory.mktemp("store")
    found = Builder("buildah", f"--root={store}/root", f"--runroot={store}/run", "--storage-driver=vfs")
    yield found
    run(*found.command, "rm", "--all")


@pytest.fixture(scope="module")
def image(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Build the image; return its configuration."""
    base = builder.make_base(tmp_path_factory.mktemp("base") / SUITE)
    words: list[str] = ["-f", str(ROOT / "Containerfile"), "-t", TAG, "--build-arg", f"BASE={base}"]
    words += ["--build-arg", f"VERSION={__version__}"]
    if not builder.is_engine:
        words += ["--isolation=chroot", "--format=docker"]
        words += [f"--volume={path}:{path}:ro" for path in HOST_FILES if Path(path).exists()]
    builder("build", *words, ROOT)
    if builder.is_engine:
        (found,) = json.loads(builder("image", "inspect", TAG))
        return dict(found["Config"])
    return dict(json.loads(builder("inspect", "--type=image", TAG))["Docker"]["config"])


def session_output(builder: Builder, image: dict[str, Any]) -> list[str]:
    """Run the session in a container without a network; return its output."""
    command = ("sh", "-c", SESSION_SCRIPT, "sh", *image["Entrypoint"], *image["Cmd"])
    if builder.is_engine:
        options = ("--rm", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--network=none", "--init")
        return builder("run", *options, "--entrypoint=/usr/bin/env", TAG, *command).splitlines()
    root = builder("mount", builder("from", TAG).strip()).strip()
    unshare = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--propagation", "private")
    return run_checked(*unshare, "sh", "-euc", NAMESPACE_SCRIPT, root, *image["Env"], *command).splitlines()


def test_configuration(image: dict[str, Any]) -> None:
    """The image has a user, ports, a volume, a health check and labels."""
    assert image["User"] == "10001:10001"
    assert set(image["ExposedPorts"]) == {"9092/tcp", "8080/tcp"}
    assert set(image["Volumes"]) == {"/var/lib/kreplica"}
    assert image["StopSignal"] == "SIGTERM"
    assert image["Healthcheck"]["Test"] == ["CMD", "kreplica-health"]
    assert image["Labels"]["org.opencontainers.image.version"] == __version__


def test_a_broker_in_a_container(builder: Builder, image: dict[str, Any]) -> None:
    """The broker is healthy, takes a record, cannot write to its image, has no capabilities, and stops normally."""
    nothing = "0" * 16
    assert session_output(builder, image) == ["ready", "hello", "10001", nothing, nothing, "stopped"]


def test_testcontainers(builder: Builder, image: dict[str, Any]) -> None:
    """``KreplicaContainer`` starts the image with Docker, and clients reach the broker through the published port."""
    if builder.command[0] != "docker":
        pytest.skip("docker does not run here")
    with KreplicaContainer(TAG) as kafka, Cluster(kafka.get_bootstrap_server()) as cluster:
        create_topic(cluster, "greetings", 1, 1)
        with Producer(cluster) as producer:
            producer.send("greetings", b"hello")
        assert {str(broker.address) for broker in cluster.view.brokers.values()} == {kafka.get_bootstrap_server()}
