"""``docs/tutorials/five-minutes.md``: every command and program prints the output on the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import page_sessions as sessions
import pytest

from kreplica import __version__
from kreplica.service.process.banner import ClusterAddresses, banner
from tests.support.standalone import StandaloneProcess

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "five-minutes.md").read_text()


@pytest.mark.needs_program("curl", "jq")
def test_tour_prints_the_output_on_the_page(tmp_path: Path) -> None:
    """All blocks, run in order against three brokers, print the output on the page."""
    printed, commands, programs = "", 0, 0
    with StandaloneProcess(tmp_path, brokers=3) as process:
        for language, text in sessions.blocks(PAGE):
            if language == "console":
                for command, shown in sessions.STEP.findall(text):
                    moved = sessions.with_ports_of(command, process)
                    printed = sessions.output(moved, tmp_path, {"KREPLICA_ADMIN": process.admin_url})
                    sessions.assert_as_shown(command, printed, shown)
                    commands += 1
            elif language == "python":
                program = [sys.executable, "-c", sessions.with_ports_of(text, process)]
                printed = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout
                programs += 1
            elif language == "text":
                assert printed == text
    assert commands >= 8
    assert programs == 1


def test_banner_on_the_page_is_that_of_three_brokers() -> None:
    brokers = [f"127.0.0.1:{port}" for port in (9092, 9093, 9094)]
    addresses = ClusterAddresses(brokers, "http://127.0.0.1:8080", "127.0.0.1:2181", "data")
    shown = banner(__version__, addresses, "3.11.2, optimized").splitlines()
    lines = re.findall(r"^  (?:brokers|admin) .*$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    assert set(lines) <= set(shown)
