"""The manual pages in the packages."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica.cli.terminal.manual import manual_pages
from kreplica.cli.terminal.reference import reference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return manual_pages()


def test_each_command_has_a_page(pages: dict[str, str]) -> None:
    """There is a page for each command in the generated reference, and one for ``kreplica`` itself."""
    commands = re.findall(r"^##+ (kreplica .*)$", reference(), re.MULTILINE)
    assert set(pages) == {"kreplica.1", *(f"{command.replace(' ', '-')}.1" for command in commands)}
    assert len(pages) > 90


def test_page_has_options_and_variables(pages: dict[str, str]) -> None:
    page = pages["kreplica-topic-create.1"].replace("\\-", "-")
    for text in ("\\fB--admin URL", "KREPLICA_ADMIN", "KREPLICA_PROFILE", "--partitions", "\\fBkreplica-topic\\fR(1)"):
        assert text in page


@pytest.mark.needs_program("man")
def test_no_page_has_warnings(pages: dict[str, str], tmp_path: Path) -> None:
    """``man`` formats all pages without warnings, and each page has the name of its command."""
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    command = ["man", "--warnings=w", "-E", "UTF-8", "-P", "cat", "-l", *sorted(pages)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name in pages:
        assert re.search(rf"^ +{name.removesuffix('.1')} +- +\S", done.stdout, re.MULTILINE), name


def test_wheel_contains_the_generated_files(tmp_path: Path) -> None:
    """Each pattern in ``data_files`` of setup.cfg matches a file that ``packaging/manual.py`` writes."""
    subprocess.run([sys.executable, ROOT / "packaging" / "manual.py", tmp_path], check=True)
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    patterns = dict(settings["options.data_files"])
    assert len(patterns) == 4
    for pattern in patterns.values():
        assert list(tmp_path.glob(pattern.removeprefix("share/"))), pattern
    assert "_KREPLICA_COMPLETE" in (tmp_path / "bash-completion/completions/kreplica").read_text()
