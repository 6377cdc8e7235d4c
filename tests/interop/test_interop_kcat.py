"""kcat: a text file from this system's files is written and read back byte for byte."""

import hashlib
import subprocess
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_program("kcat")

FILE_BYTES = 20 * 2**20


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    """At least 20 MB of real text: Python's own sources, repeated, without empty lines (kcat skips those)."""
    path = tmp_path_factory.mktemp("text") / "text"
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    with path.open("wb") as file:
        while file.tell() < FILE_BYTES:
            for source in sources:
                file.writelines(line for line in source.read_bytes().splitlines(keepends=True) if line.strip(b"\r\n"))
                file.write(b"# the end\n")
    return path


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_file_is_returned_byte_for_byte(broker, topic, text_file, codec):
    """20 MB of text, one record per line, are written to one partition and read back unchanged."""
    subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-p", "0", "-P", "-z", codec, "-l", str(text_file)],
        check=True,
        timeout=120,
    )
    reader = subprocess.Popen(
        ["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-p", "0", "-C", "-e", "-q", "-o", "beginning"],
        stdout=subprocess.PIPE,
    )
    came = hashlib.file_digest(reader.stdout, "sha256").hexdigest()
    assert reader.wait(60) == 0
    with text_file.open("rb") as file:
        assert came == hashlib.file_digest(file, "sha256").hexdigest()


def test_readme_example(broker, topic):
    """The two commands in the banner and the README."""
    subprocess.run(["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-P"], input=b"hello\nworld\n", check=True)
    out = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-C", "-e", "-q"], capture_output=True, check=True
    )
    assert out.stdout == b"hello\nworld\n"


def test_listing(broker, topic):
    """``kcat -L`` shows the broker and the topic."""
    subprocess.run(["kcat", "-b", broker.bootstrap_servers, "-t", topic, "-P"], input=b"x\n", check=True)
    command = ["kcat", "-b", broker.bootstrap_servers, "-L"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"broker 1 at 127.0.0.1:{broker.port}" in out
    assert f'topic "{topic}" with 1 partitions' in out
