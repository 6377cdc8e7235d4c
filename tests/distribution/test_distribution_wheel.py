"""``make dist``: the wheels and the source distribution, and what an installation of a wheel can do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kreplica import __version__
from kreplica.blocking import Cluster, Producer
from kreplica.blocking.admin import create_topic
from tests.support.server_process import ServerProcess, free_ports

ROOT = Path(__file__).parents[2]
EPOCH = "1750000000"
PACKAGES = ("kreplica", "pyspark_kreplica", "twisted")
KERNELS = "kreplica/wire/_kernels.abi3.so"


class Distributions(NamedTuple):
    """Files of one build.

    :ivar wheel: wheel with the compiled kernels.
    :ivar pure: wheel without the kernels, for all platforms.
    """

    wheel: Path
    pure: Path
    sdist: Path
    lock: Path


def run(*words: object, **options: object) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def build(output: Path, umask: int = 0o022) -> Distributions:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    words = (sys.executable, ROOT / "packaging" / "dist.py", "--output", output)
    return Distributions(*map(Path, run(*words, env=environment, umask=umask, cwd=output.parent).splitlines()))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("first") / "dist")


@pytest.mark.soak
def test_builds_are_reproducible(distributions: Distributions, tmp_path: Path) -> None:
    """A second build, with another umask, produces identical files."""
    rebuilt = build(tmp_path / "dist", umask=0o077)
    for first, second in zip(distributions, rebuilt, strict=True):
        assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())


def test_the_wheel_has_every_file_of_the_packages(distributions: Distributions) -> None:
    """The wheel contains all files of the packages, manual pages and shell completion, and no other files."""
    names = names_in(distributions.pure)
    assert names_in(distributions.wheel) == names | {KERNELS}
    shared = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert {"share/man/man1/kreplica-start.1", "share/bash-completion/completions/kreplica"} <= shared
    names = {name for name in names if ".data/" not in name}
    ignored = {"__pycache__", "dropin.cache"}
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".so" and not ignored & set(path.parts)
    }
    assert names == expected
    assert {"kreplica/py.typed", "twisted/plugins/kreplica_plugin.py", "kreplica/admin/dashboard/index.html"} <= names
    assert any(name.startswith("kreplica/wire/messages/") for name in names)


def test_metadata(distributions: Distributions) -> None:
    """The licence, the version and the entry points are in the wheel, which supports every Python from 3.11 on."""
    assert re.fullmatch(rf"kreplica-{__version__}-cp311-abi3-linux_\w+\.whl", distributions.wheel.name)
    assert distributions.pure.name == f"kreplica-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(distributions.wheel) as wheel:
        files = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
        metadata = wheel.read(files["METADATA"]).decode()
        entry_points = wheel.read(files["entry_points.txt"]).decode()
        assert wheel.read(files["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert f"\nVersion: {__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "kreplica = kreplica.cli:main" in entry_points
    assert "kreplica = kreplica.testing.fixtures.plugin" in entry_points


@pytest.mark.soak
def test_the_source_distribution_builds_the_same_wheel(distributions: Distributions, tmp_path: Path) -> None:
    """The wheel that pip builds from the source distribution is identical to the distributed wheel, byte for byte."""
    wheel, _, sdist, _ = distributions
    with tarfile.open(sdist) as archive:
        assert {member.mtime for member in archive.getmembers()} == {int(EPOCH)}
        assert {member.uname for member in archive.getmembers()} == {"root"}
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    run(*pip, "--wheel-dir", tmp_path, sdist, env=environment, umask=0o022)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_checkers_find_nothing(distributions: Distributions) -> None:
    """twine accepts the metadata and the description; check-wheel-contents finds no stray files."""
    wheel, pure, sdist, _ = distributions
    assert "PASSED" in run(sys.executable, "-m", "twine", "check", "--strict", wheel, pure, sdist)
    assert "OK" in run(sys.executable, "-m", "check_wheel_contents", "--ignore", "W009", wheel, pure)


@pytest.mark.soak
def test_installation_without_a_compiler(tmp_path: Path) -> None:
    """Without a compiler, the installation has no kernels and says so; only the wheel for all platforms is built."""
    sources = tmp_path / "kreplica"
    ignored = shutil.ignore_patterns(".*", "build", "*.so", "__pycache__")
    shutil.copytree(ROOT, sources, ignore=ignored)
    environment = {**os.environ, "CC": "no-such-compiler", "SOURCE_DATE_EPOCH": EPOCH}
    words = (sys.executable, sources / "packaging" / "dist.py", "--output", tmp_path / "dist")
    names = [Path(line).name for line in run(*words, env=environment).splitlines()]
    assert [name for name in names if name.endswith(".whl")] == [f"kreplica-{__version__}-py3-none-any.whl"]
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--target", tmp_path / "installed", sources, env=environment)
    path = os.pathsep.join([str(tmp_path / "installed"), *sys.path])
    output = run(
        sys.executable, "-m", "kreplica.cli", "--version", cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    assert output.endswith("\nkernels in Python\n")


# --- a clean environment ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of the virtual environment that the commands of the README create."""
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"^python3 -m venv .*\n.*pip install .*\n", readme, re.MULTILINE)
    assert found is not None
    assert found[0] in (ROOT / "docs" / "how-to" / "install.md").read_text()
    directory = tmp_path_factory.mktemp("clean")
    (directory / "build").mkdir()
    (directory / "build" / "dist").symlink_to(distributions.sdist.parent)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    run("bash", "-euc", found[0], cwd=directory, env={**os.environ, "PATH": path, "PIP_NO_COMPILE": "1"})
    return directory / "kreplica-venv" / "bin"


class InstalledBroker(ServerProcess):
    """``twistd kreplica standalone`` of an environment, in a directory without the source."""

    def __init__(self, directory: Path, programs: Path) -> None:
        super().__init__(directory, f"kreplica {__version__} is ready".encode())
        self._programs = programs
        self.port, self.admin_port, self._coordinator_port = free_ports(3)

    def command(self) -> list[str]:
        ports = {"--port": self.port, "--admin-port": self.admin_port, "--zookeeper-port": self._coordinator_port}
        words = [str(word) for pair in ports.items() for word in pair]
        return [str(self._programs / "twistd"), "-n", "--pidfile=", "kreplica", "standalone", "--data-dir", "d", *words]


@pytest.fixture
def broker(environment: Path, tmp_path: Path) -> Iterator[InstalledBroker]:
    with InstalledBroker(tmp_path, environment) as process:
        yield process


@pytest.mark.soak
def test_an_installed_broker_takes_a_record(broker: InstalledBroker, environment: Path) -> None:
    """A record is written through Kafka's protocol and read by the command line; the dashboard has its files."""
    with Cluster(f"127.0.0.1:{broker.port}") as cluster:
        create_topic(cluster, "greetings", 1, 1)
        with Producer(cluster) as producer:
            producer.send("greetings", b"hello")
    address = f"127.0.0.1:{broker.port}"
    words = ("consume", "greetings", "--bootstrap", address, "--count", "1")
    assert "hello" in run(environment / "kreplica", *words, cwd=broker.directory)


def test_installed_programs(environment: Path, tmp_path: Path) -> None:
    """The command, the twistd plugin, the data source of Spark and the pytest plugin are found."""
    version = run(environment / "kreplica", "--version", cwd=tmp_path)
    assert version.startswith(f"kreplica {__version__}\n")
    assert version.endswith("\nkernels in C\n")
    assert "standalone" in run(environment / "twistd", "kreplica", "--help", cwd=tmp_path)
    program = (
        "import importlib.util as u, importlib.metadata as m\n"
        "import kreplica, kreplica.wire.messages\n"
        "assert u.find_spec('pyspark_kreplica') and u.find_spec('kreplica.testing.fixtures.plugin')\n"
        "print(kreplica.__file__, *[e.name for e in m.entry_points(group='pytest11')])\n"
    )
    output = run(environment / "python", "-c", program, cwd=tmp_path)
    assert re.fullmatch(rf"{re.escape(str(environment.parent))}/.*/kreplica/__init__\.py kreplica\n", output)
