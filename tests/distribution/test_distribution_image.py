"""The container image: its description, and its health check."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
HEALTH = ROOT / "packaging" / "container" / "health.py"

Serve = Callable[[int, bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with one fixed response, and returns its URL."""
    servers = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/health/ready"
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *words: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def health(admin_url: str) -> tuple[int, str]:
    environment = {**os.environ, "KREPLICA_ADMIN": admin_url, "http_proxy": "http://127.0.0.1:1"}
    done = subprocess.run([sys.executable, HEALTH], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_healthy_broker(serve: Serve) -> None:
    assert health(serve(200, b'{"status":"ready"}')) == (0, "ready\n")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (503, b'{"status":"not ready","reasons":["no session","no controller"]}', "no session; no controller"),
        (500, b"broken", "responded with status 500"),
        (503, b"[]", "responded with status 503"),
    ],
)
def test_the_reasons_are_printed(serve: Serve, status: int, body: bytes, reason: str) -> None:
    """The health check prints the reasons, which ``docker inspect`` shows."""
    code, text = health(serve(status, body))
    assert code == 1
    assert reason in text


@pytest.mark.parametrize("admin_url", ["http://127.0.0.1:1", "https://127.0.0.1:1/", "127.0.0.1:8080"])
def test_no_response(admin_url: str) -> None:
    code, text = health(admin_url)
    assert code == 1
    assert text.startswith(f"no response from {admin_url.rstrip('/')}: ")
    assert text.count("\n") == 1


def test_the_image_runs_as_a_user_with_its_data_in_a_volume() -> None:
    last = CONTAINERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", last, re.MULTILINE)
    assert "\nVOLUME /var/lib/kreplica\n" in last
    assert '"/var/lib/kreplica"' in last.rpartition("\nCMD ")[2]
    assert re.search(r'^HEALTHCHECK .* CMD \["kreplica-health"\]$', last, re.MULTILINE)


def test_everything_is_installed_with_hashes() -> None:
    """Each pip command installs locked versions, or the wheel of this source."""
    steps = CONTAINERFILE.replace("\\\n", " ").replace("&&", "\n").splitlines()
    commands = [step for step in steps if re.search(r"-m pip .*(install|wheel) ", step)]
    assert len(commands) == 4
    for command in commands:
        assert "--require-hashes" in command or "--no-deps" in command


def test_files_that_are_copied_are_in_the_build_context() -> None:
    """The ignore file excludes everything except the paths that the build reads."""
    lines = (ROOT / ".containerignore").read_text().splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert lines[1] == "*"
    for path in allowed:
        assert (ROOT / path).exists()
    for path in re.findall(r"packaging/[\w./-]+", CONTAINERFILE):
        assert any(fnmatch.fnmatch(path, f"{each}*") for each in allowed), path
    assert os.readlink(ROOT / ".dockerignore") == ".containerignore"
