"""Commands and output in the README are correct."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica import __version__
from kreplica.service.process.banner import ClusterAddresses, banner
from tests.support.standalone import StandaloneProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with StandaloneProcess(tmp_path_factory.mktemp("readme")) as started:
        yield started


@pytest.fixture(scope="module")
def process_with_three_brokers(tmp_path_factory):
    """The cluster that the README's ``make run ARGS=...`` starts."""
    (options,) = re.findall(r"^make run ARGS='--brokers 3 (.*)'$", README, re.MULTILINE)
    directory = tmp_path_factory.mktemp("three-brokers")
    with StandaloneProcess(directory, brokers=3, arguments=tuple(options.split())) as started:
        yield started


def with_ports_of(text, process):
    """Replace the README's ports by those of the test's process."""
    for number in range(3):
        text = text.replace(f"127.0.0.1:{9092 + number}", f"127.0.0.1:{process.port + number}")
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{process.admin_port}")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.needs_program("kcat", "curl")
@pytest.mark.parametrize(("index", "started"), [(0, "process"), (1, "process_with_three_brokers")])
def test_console_sessions(index, started, request):
    """Each command prints the output that the README shows below it, with one broker and with three."""
    process = request.getfixturevalue(started)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", blocks("console")[index], re.MULTILINE)
    assert len(steps) >= 3
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", with_ports_of(command, process)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.mark.needs_program("curl")
def test_python_example(process):
    """The example prints the record that it wrote."""
    program, *_ = blocks("python")  # tests/docs/test_docs_client.py and tests/spark_jvm run the other examples
    done = subprocess.run(
        [sys.executable, "-c", with_ports_of(program, process)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "b'42' b'two coffees'\n", done.stderr
    (command,) = re.findall(r"^curl .*/lag$", README, re.MULTILINE)
    done = subprocess.run(["bash", "-c", with_ports_of(command, process)], capture_output=True, text=True, timeout=60)
    lag = json.loads(done.stdout)
    assert (lag["group"], lag["lag"]) == ("kitchen", 0), "the example reads everything and commits when it closes"


def test_banner():
    """The README contains the banner that a process prints."""
    addresses = ClusterAddresses(
        ["127.0.0.1:9092"], "http://127.0.0.1:8080", "127.0.0.1:2181", "/home/you/kreplica/data"
    )
    text = banner(__version__, addresses, "3.11.2, optimized")
    assert text.strip() in README


def test_commands_exist():
    """Each make target and twistd command that the README names exists."""
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    twistd = Path(sys.executable).with_name("twistd")
    for command in re.findall(r"twistd -n kreplica (\w+)", README):
        done = subprocess.run([twistd, "kreplica", command, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert "Usage" in done.stdout


@pytest.mark.parametrize("path", re.findall(r"\]\((?!https?:)([\w./-]+)", README))
def test_linked_files_exist(path):
    assert (ROOT / path).exists()
