"""The contents of the Debian package, read by Debian's tools, match the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("kreplica-broker.service", "kreplica-broker@.service", "kreplica-coordinator.service", "kreplica.target")

pytestmark = pytest.mark.needs_program("dpkg-deb")


class Entry(NamedTuple):
    mode: str
    owner: str
    target: str


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """Build the package as ``make deb`` does, with a small environment instead of the real one of 100 MB."""
    directory = tmp_path_factory.mktemp("package")
    programs = directory / "environment" / "bin"
    programs.mkdir(parents=True)
    for name in ("twistd", "kreplica"):
        (programs / name).write_text(f"#!{directory}/environment/bin/python3.11\nprint({name!r})\n")
    (programs / "activate").write_text("VIRTUAL_ENV=elsewhere\n")
    (programs / "python").symlink_to(sys.executable)
    (directory / "environment" / "lib").mkdir()
    (directory / "environment" / "lib" / "module.so").write_text("")
    words = [sys.executable, ROOT / "packaging" / "deb.py", "--output", directory / "out"]
    built = subprocess.run(
        [*words, "--environment", directory / "environment"], capture_output=True, text=True, check=True
    )
    return Path(built.stdout.strip())


def output_of(*words: object) -> str:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def contents(package) -> dict[str, Entry]:
    found = {}
    for line in output_of("dpkg-deb", "--contents", package).splitlines():
        mode, owner, _, _, _, path = line.split(None, 5)
        name, _, target = path.partition(" -> ")
        found[name.removeprefix(".").rstrip("/")] = Entry(mode, owner, target)
    return found


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("unpacked")
    output_of("dpkg-deb", "-R", package, directory)
    return directory


def test_contents(contents):
    """The package contains units, account, directories, settings, programs, documentation and shell completion."""
    for name in NAMES:
        assert f"/lib/systemd/system/{name}" in contents
    for path in ("/usr/lib/sysusers.d/kreplica.conf", "/usr/lib/tmpfiles.d/kreplica.conf"):
        assert path in contents
    settings = {path.name for path in (ROOT / "etc/kreplica").iterdir()}
    assert {Path(path).name for path in contents if path.startswith("/etc/kreplica/")} == settings
    for path in ("docs/how-to/operations.md", "docs/plugins/kreplica/plugins/tags.py", "grafana/kreplica.json"):
        assert f"/opt/kreplica/{path}" in contents
    assert "/usr/share/doc/kreplica/copyright" in contents
    assert contents["/usr/bin/kreplica"].target == "/opt/kreplica/.venv/bin/kreplica"
    for path in ("bash-completion/completions/kreplica", "zsh/vendor-completions/_kreplica", "man/man1/kreplica.1.gz"):
        assert f"/usr/share/{path}" in contents
    pages = {Path(path).name for path in contents if path.startswith("/usr/share/man/man1/k")}
    assert {"kreplica-start.1.gz", "kreplica-topic-create.1.gz", "kreplica-profile.1.gz"} <= pages


@pytest.mark.needs_program("man")
def test_manual_page_is_readable(unpacked):
    """``man`` can display a page of the package."""
    page = unpacked / "usr/share/man/man1/kreplica-start.1.gz"
    shown = output_of("env", "MANWIDTH=100", "man", "-P", "cat", "-l", page)
    assert re.search(r"kreplica-start +- +Start +a +cluster +on +this +machine", shown)
    assert "--processes" in shown


def test_owners_and_modes(contents):
    """Files belong to root and are not writable by others; programs are executable; settings are not world-readable."""
    for path, entry in contents.items():
        assert entry.owner == "root/root", path
        if not entry.target:
            assert "w" not in entry.mode[4:], path
            assert "s" not in entry.mode.lower()[1:], path
        if path.startswith("/etc/kreplica/"):
            assert entry.mode == "-rw-r-----", path
        elif entry.mode.startswith("-"):
            is_program = "/bin/" in path or path.endswith(".so")
            assert entry.mode == ("-rwxr-xr-x" if is_program else "-rw-r--r--"), path
        elif entry.mode.startswith("d"):
            assert entry.mode == "drwxr-xr-x", path
    assert not [path for path in contents if "__pycache__" in path or path.endswith(("~", ".orig", "dropin.cache"))]


def test_environment_has_its_final_path(contents, unpacked):
    """Programs refer to the installation path and Debian's Python, not to the build directory."""
    environment = unpacked / "opt/kreplica/.venv"
    assert contents["/opt/kreplica/.venv/bin/python3.11"].target == "/usr/bin/python3.11"
    assert contents["/opt/kreplica/.venv/bin/python"].target == "python3.11"
    for name in ("twistd", "kreplica"):
        assert (environment / "bin" / name).read_text().startswith("#!/opt/kreplica/.venv/bin/python\n")
    assert not (environment / "bin" / "activate").exists()
    assert (environment / "pyvenv.cfg").read_text().startswith("home = /usr/bin\n")


def test_control_fields(package, unpacked):
    """The package has a name, version and dependencies; the settings are conffiles."""
    assert output_of("dpkg-deb", "--field", package, "Package").strip() == "kreplica"
    version = output_of("dpkg-deb", "--field", package, "Version").strip()
    assert f'__version__ = "{version}"' in (ROOT / "kreplica/__init__.py").read_text()
    dependencies = output_of("dpkg-deb", "--field", package, "Depends")
    assert "python3.11" in dependencies
    description = output_of("dpkg-deb", "--field", package, "Description")
    assert all(len(line) <= 80 for line in description.splitlines())
    conffiles = (unpacked / "DEBIAN" / "conffiles").read_text().split()
    assert conffiles == sorted(f"/etc/kreplica/{path.name}" for path in (unpacked / "etc/kreplica").iterdir())


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm"])
def test_maintainer_scripts(unpacked, name):
    """The scripts are executable shell scripts, stop at the first error, and remove no data."""
    script = unpacked / "DEBIAN" / name
    assert script.stat().st_mode & 0o777 == 0o755
    text = script.read_text()
    assert text.startswith("#!/bin/sh\nset -e\n")
    subprocess.run(["sh", "-n", script], check=True)
    assert not re.search(r"\brm\b|deluser|userdel", text)


def test_operations_page_refers_to_existing_files(contents):
    """Each unit and file that the page names is in the package."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    commands = re.findall(r"^# (systemctl|cp|editor|apt) (.*)$", page, re.MULTILINE)
    assert len(commands) >= 6
    for program, rest in commands:
        if program == "systemctl":
            for unit in re.findall(r"kreplica-[\w]+@?|kreplica\.\w+", rest):
                assert unit in NAMES or f"{unit}.service" in NAMES
        elif program == "cp":
            assert rest.split()[0] in contents
    version = re.search(r"kreplica_([\d.]+)_amd64", page)
    assert version is not None
    assert f'"{version[1]}"' in (ROOT / "kreplica/__init__.py").read_text()
