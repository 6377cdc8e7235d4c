"""The session in ``docs/how-to/standalone.md`` prints the shown output."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kreplica.admin.resources.standalone import ACTIONS
from kreplica.service.standalone.standalone import SESSION_TIMEOUT_MS
from tests.support.standalone import StandaloneProcess

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "standalone.md").read_text()


@pytest.mark.needs_program("curl", "jq", "kcat")
def test_the_session_prints_the_shown_output(tmp_path: Path) -> None:
    """The session, in which a broker is killed and restarted, prints the shown output."""
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    assert len(steps) >= 10
    with StandaloneProcess(tmp_path, brokers=3) as process:
        for command, expected in steps:
            moved = command.replace("127.0.0.1:8080", f"127.0.0.1:{process.admin_port}")
            for number in range(3):
                moved = moved.replace(f"127.0.0.1:{9092 + number}", f"127.0.0.1:{process.port + number}")
            done = subprocess.run(["bash", "-o", "pipefail", "-c", moved], capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout) == (0, expected), (command, done.stderr)


def test_every_button_is_on_the_page() -> None:
    """The page lists every button, and has the correct session timeout."""
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)))) == set(ACTIONS)
    assert f"times out after {SESSION_TIMEOUT_MS // 1000} seconds" in PAGE
