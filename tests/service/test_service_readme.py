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
def three(tmp_path_factory):
    """The processes that the README's ARGS start."""
    (options,) = re.findall(r"^make run ARGS='--brokers 3 (.*)'$", README, re.MULTILINE)
    directory = tmp_path_factory.mktemp("three")
    with StandaloneProcess(directory, brokers=3, arguments=tuple(options.split())) as started:
        yield started


def moved(text, process):
    """Replace the ports by those of the test's process."""
    for number in range(3):
        text = text.replace(f"127.0.0.1:{9092 + number}", f"127.0.0.1:{process.port + number}")
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{process.admin_port}")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.needs_program("kcat", "curl")
@pytest.mark.parametrize(("index", "started"), [(0, "process"), (1, "three")])
def test_console_sessions(index, started, request):
    """Each command prints the output below it, with one broker and with three."""
    process = request.getfixturevalue(started)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", blocks("console")[index], re.MULTILINE)
    assert len(steps) >= 3
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", moved(command, process)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.mark.needs_program("curl")
def test_python_example(process):
    """The example prints the record that it wrote."""
    program, *_ = blocks("python")  # tests/docs/test_docs_client.py and tests/spark_jvm run the others
    done = subprocess.run([sys.executable, "-c", moved(program, process)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b'42' b'two coffees'\n", done.stderr
    (command,) = re.findall(r"^curl .*/lag$", README, re.MULTILINE)
    asked = subprocess.run(["bash", "-c", moved(command, process)], capture_output=True, text=True, timeout=60)
    lag = json.loads(asked.stdout)
    assert (lag["group"], lag["lag"]) == ("kitchen", 0), "it read everything and committed at the close"


def test_banner():
    """The banner in the README is the one that the process prints."""
    addresses = ClusterAddresses(
        ["127.0.0.1:9092"], "http://127.0.0.1:8080", "127.0.0.1:2181", "/home/you/kreplica/data"
    )
    shown = banner(__version__, addresses, "3.11.2, optimized")
    assert shown.strip() in README


def test_commands_exist():
    """Every make target and twistd command that the README names exists."""
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
