"""Programs of the system that tests need: the list of missing programs, and their installation."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import system_programs
from system_programs import PACKAGES, has_apt, missing, packages_of

pytest_plugins = "pytester"

TESTS = Path(__file__).parents[1]

SUITE = """
import pytest

@pytest.mark.needs_program("jq")
def test_one(): pass

@pytest.mark.needs_program("jq", "gcc")
def test_two(): pass

@pytest.mark.needs_program("sh")
def test_three(): pass

def test_four(): pass
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory that is the only one in ``PATH``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_missing_programs(programs: Path) -> None:
    """Programs are searched in PATH, and each missing package is listed once."""
    program(programs / "jq")
    assert missing(["jq", "kcat", "systemctl", "systemd-analyze"]) == ["kcat", "systemctl", "systemd-analyze"]
    assert packages_of(["systemctl", "systemd-analyze", "gcc"]) == ["gcc", "libc6-dev", "systemd"]


def test_every_program_that_a_test_needs_has_a_package() -> None:
    """The table and the tests name the same programs."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            for words in re.findall(r"needs_program\(([^)]*)\)", path.read_text(encoding="utf-8")):
                found |= set(re.findall(r'"([^"]+)"', words))
    assert found == set(PACKAGES)


@pytest.mark.parametrize(
    ("text", "is_debian"),
    [
        ("ID=debian\n", True),
        ("NAME=x\nID=ubuntu\nID_LIKE=debian\n", True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ("ID=fedora\n", False),
        ("", False),
    ],
)
def test_systems_that_have_apt(text: str, is_debian: bool, programs: Path, tmp_path: Path) -> None:
    """apt is used on Debian and its derivatives if apt-get exists."""
    (tmp_path / "os-release").write_text(text)
    assert not has_apt(tmp_path / "os-release")
    program(programs / "apt-get")
    assert has_apt(tmp_path / "os-release") is is_debian
    assert not has_apt(tmp_path / "absent")


def test_an_unavailable_package_does_not_prevent_the_others(
    programs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the installation of all packages fails, each one is tried alone; errors are printed."""
    log = tmp_path / "asked"
    script = f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *chromium*) echo "E: no chromium" >&2; exit 100;; esac\n'
    program(programs / "apt-get", script)
    system_programs.install(["chromium", "jq", "kcat"])
    lines = [line.partition("install --yes --no-install-recommends ")[2] for line in log.read_text().splitlines()]
    assert lines == ["", "chromium jq kcat", "chromium", "jq", "kcat"]
    assert capfd.readouterr().err.count("E: no chromium") == 2


def test_no_program_is_installed_without_a_network(
    programs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the package lists cannot be downloaded, the error is printed and make test continues."""
    log = tmp_path / "asked"
    program(programs / "apt-get", f'#!/bin/sh\necho "$@" >> {log}\necho "E: no network" >&2\nexit 100\n')
    system_programs.install(["jq"])
    assert len(log.read_text().splitlines()) == 1
    assert "E: no network" in capfd.readouterr().err


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_summary_of_a_run(workers: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped tests are counted, their packages are listed, and pytest's own line is the last."""
    monkeypatch.delenv("CI", raising=False)
    done = run(pytester, monkeypatch, "-n", workers)
    assert done.ret == 0
    summary, last = done.outlines[-2:]
    assert summary == "2 tests skipped because programs are not installed; Debian packages: gcc jq libc6-dev"
    assert re.match(r"(=+ )?2 passed, 2 skipped", last)


def test_a_missing_program_fails_in_continuous_integration(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CI set, a missing program fails the test that needs it."""
    monkeypatch.setenv("CI", "true")
    done = run(pytester, monkeypatch, "-n", "0")
    assert done.ret == 1
    assert "2 tests failed because programs are not installed; Debian packages: gcc jq libc6-dev" in done.outlines
    assert re.match(r"(=+ )?2 passed, 2 errors", done.outlines[-1])


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *words: str) -> pytest.RunResult:
    """Run a small suite with this repository's conftest and only ``sh`` in ``PATH``."""
    pytester.makepyfile(test_small=SUITE)
    (pytester.path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (pytester.path / "pytest.ini").write_text("[pytest]\nmarkers =\n    needs_program(name): as in setup.cfg\n")
    folder = pytester.path / "bin"
    folder.mkdir()
    program(folder / "sh")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    options = ["--disable-plugin-autoload", "-p", "xdist.plugin", "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *options, *words, "test_small.py"]
    return pytester.run(*command, timeout=60)
