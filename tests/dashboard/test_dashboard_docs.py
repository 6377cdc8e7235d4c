"""Checks of the dashboard's documentation."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from . import screenshots

ROOT = Path(__file__).parents[2]
SIZE_MAX = 200_000


def test_the_contract_server_serves_the_pages():
    """The command on the development page prints an address that serves the dashboard."""
    (module,) = re.findall(r"^python -m (tests\.dashboard\.contract_server)\b", page(), re.MULTILINE)
    process = subprocess.Popen([sys.executable, "-m", module], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=10) as response:
            assert b"<title>kreplica</title>" in response.read()
    finally:
        process.kill()
        process.communicate()


def test_images_are_written_by_the_script():
    """Each image on the page exists, is small, and is written by the command on the page."""
    assert "python -m tests.dashboard.screenshots" in page()
    shown = re.findall(r"\]\(\.\./images/([\w.-]+)\)", page())
    made = {path.name: path for path in screenshots.DOCUMENTS.iterdir() if path.is_file()}
    assert sorted(shown) == sorted(made)
    assert len(shown) == 4
    source = Path(screenshots.__file__).read_text()
    for name, path in made.items():
        assert path.stat().st_size < SIZE_MAX, name
        assert path.read_bytes().startswith(b"\x89PNG"), name
        assert f'"{name}"' in source


def page():
    return (ROOT / "docs" / "how-to" / "dashboard.md").read_text()
