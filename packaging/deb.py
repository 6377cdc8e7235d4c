"""Builds a Debian package: ``make deb``, or ``python packaging/deb.py --output DIRECTORY``.

The package contains a virtual environment for Debian's ``python3.11`` in ``/opt/kreplica/.venv``, so other Python
packages on the host do not matter.  It also contains manual pages, shell completion, systemd units, the account,
directories and commented settings.  Installing it does not start any unit.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path

from dist import source_date_epoch

ROOT = Path(__file__).parents[1]
PREFIX = "opt/kreplica"
LOCK = ROOT / "packaging" / "requirements" / "broker.txt"
"""Locked versions and hashes of the environment's packages, written by ``make lock``."""

PYTHON = "/usr/bin/python3.11"
"""Python interpreter of the installed environment."""

SETTINGS = ("broker-1", "broker-2", "broker-3", "broker", "production", "single")
UNITS = (".service", ".target")
PAGES = "docs"
DIRECTORY_MODE, FILE_MODE, PROGRAM_MODE = 0o755, 0o644, 0o755

CONTROL = """Package: kreplica
Version: {version}
Architecture: {architecture}
Maintainer: The kreplica project <kreplica@example.org>
Installed-Size: {size_kb}
Depends: python3.11, systemd, libc6 (>= 2.28), libstdc++6
Section: net
Priority: optional
Description: replicated, partitioned log server that speaks the Kafka protocol
 A broker for unmodified Kafka clients, with a REST API, a dashboard and
 metrics. Cluster state is stored in ZooKeeper or in an embedded ZooKeeper
 server.
"""

CHANGELOG = """kreplica ({version}) unstable; urgency=medium

  * See NEWS.md in the source for the changes.

 -- The kreplica project <kreplica@example.org>  {date}
"""

POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    systemd-sysusers kreplica.conf
    systemd-tmpfiles --create kreplica.conf
    chgrp kreplica /etc/kreplica/*
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
    fi
fi
"""

# Brokers keep running during an upgrade: the operator restarts them one at a time.
PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop 'kreplica-broker*.service' kreplica-coordinator.service kreplica.target || true
fi
"""

# The package never deletes data.
POSTRM = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
"""


def version() -> str:
    """Return the version of the source."""
    text = (ROOT / "kreplica" / "__init__.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def build(output: Path, environment: Path | None) -> Path:
    """Build the package.

    :param environment: a virtual environment to copy; None to create one from the source.
    :return: the path of the package.
    """
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    package = output / f"kreplica_{version()}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as scratch:
        stage = Path(scratch) / "stage"
        _lay_out(stage, environment)
        _set_modes(stage)
        _control(stage, architecture)
        output.mkdir(parents=True, exist_ok=True)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(stage), str(package)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def _lay_out(stage: Path, environment: Path | None) -> None:
    home = stage / PREFIX
    home.mkdir(parents=True)
    if environment is None:
        _make_environment(home / ".venv")
    else:
        shutil.copytree(environment, home / ".venv", symlinks=True)
    _relocate(home / ".venv")
    pages = shutil.ignore_patterns("*.py", "*.pyc", "__pycache__", "dropin.cache")
    shutil.copytree(ROOT / PAGES, home / "docs", ignore=pages)
    shutil.copytree(ROOT / "docs" / "plugins", home / "docs" / "plugins", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.pyc", "__pycache__", "dropin.cache"))  # fmt: skip
    shutil.copytree(ROOT / "etc" / "grafana", home / "grafana")
    _copy([ROOT / "etc" / "kreplica" / f"{name}.properties" for name in SETTINGS], stage / "etc/kreplica")
    _copy([ROOT / "etc" / "kreplica" / "coordinator.env"], stage / "etc/kreplica")
    units = [path for path in sorted((ROOT / "systemd").iterdir()) if path.suffix in UNITS]
    _copy(units, stage / "lib/systemd/system")
    _copy([ROOT / "systemd/sysusers.d/kreplica.conf"], stage / "usr/lib/sysusers.d")
    _copy([ROOT / "systemd/tmpfiles.d/kreplica.conf"], stage / "usr/lib/tmpfiles.d")
    _copy([ROOT / "packaging/debian/copyright"], stage / "usr/share/doc/kreplica")
    _copy([ROOT / "packaging/debian/lintian-overrides"], stage / "usr/share/lintian/overrides", name="kreplica")
    changelog = CHANGELOG.format(version=version(), date=formatdate(source_date_epoch())).encode()
    (stage / "usr/share/doc/kreplica/changelog.gz").write_bytes(gzip.compress(changelog, mtime=0))
    _write_manual(stage / "usr/share")
    (stage / "usr/bin").mkdir(parents=True)
    (stage / "usr/bin/kreplica").symlink_to(f"/{PREFIX}/.venv/bin/kreplica")


def _copy(files: list[Path], to: Path, name: str | None = None) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, to / (name or file.name))


def _write_manual(share: Path) -> None:
    """Write the shell completion and the compressed manual pages."""
    subprocess.run([sys.executable, str(ROOT / "packaging" / "manual.py"), str(share)], check=True)
    for page in (share / "man" / "man1").iterdir():
        page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()


def _make_environment(path: Path) -> None:
    """Create a virtual environment with the broker and without pip.

    The wheel is built with the locked setuptools version of the running environment.
    """
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(path)], check=True)
    python = str(path / "bin" / "python")
    own_pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pip = [*own_pip, "--python", python]
    subprocess.run([*pip, "install", "--no-compile", "--require-hashes", "-r", str(LOCK)], check=True)
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # may contain modules that have been deleted since
    with tempfile.TemporaryDirectory() as wheels:
        build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, str(ROOT)]
        subprocess.run([*own_pip, *build], check=True)
        (wheel,) = Path(wheels).iterdir()
        subprocess.run([*pip, "install", "--no-compile", "--no-deps", str(wheel)], check=True)
    # Brokers cannot write to the installed environment, so compile the modules and cache the plugin lists now.
    subprocess.run([python, "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash",
                    "-s", str(path), "-p", f"/{PREFIX}/.venv", str(path / "lib")], check=False)  # fmt: skip
    subprocess.run([python, ROOT / "packaging" / "cache_plugins.py"], check=True, cwd="/")


def _relocate(environment: Path) -> None:
    """Rewrite scripts and links to use the installation path and Debian's Python."""
    there = f"/{PREFIX}/.venv"
    programs = environment / "bin"
    for program in sorted(programs.iterdir()):
        if program.is_symlink():
            continue
        head, _, rest = program.read_bytes().partition(b"\n")
        if head.startswith(b"#!") and b"python" in head:
            program.write_bytes(f"#!{there}/bin/python\n".encode() + rest)
        elif program.name.lower().startswith("activate"):
            program.unlink()
    for name, target in (("python3.11", PYTHON), ("python3", "python3.11"), ("python", "python3.11")):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(target)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11\n")


def _set_modes(stage: Path) -> None:
    """Set file modes that do not depend on the umask of the build process."""
    for path in [stage, *sorted(stage.rglob("*"))]:
        if path.is_symlink():
            continue
        if path.is_dir():
            path.chmod(DIRECTORY_MODE)
        else:
            is_program = path.parent.name == "bin" or path.suffix == ".so" or ".so." in path.name
            path.chmod(PROGRAM_MODE if is_program else FILE_MODE)
    for file in (stage / "etc/kreplica").iterdir():
        file.chmod(0o640)


def _control(stage: Path, architecture: str) -> None:
    size_kb = sum(path.lstat().st_size for path in stage.rglob("*") if path.is_file()) // 1024
    directory = stage / "DEBIAN"
    directory.mkdir()
    directory.chmod(DIRECTORY_MODE)
    text = CONTROL.format(version=version(), architecture=architecture, size_kb=size_kb)
    (directory / "control").write_text(text)
    names = sorted(path.name for path in (stage / "etc/kreplica").iterdir())
    (directory / "conffiles").write_text("".join(f"/etc/kreplica/{name}\n" for name in names))
    for name, script in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
        (directory / name).write_text(script)
        (directory / name).chmod(PROGRAM_MODE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a Debian package of this source.")
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="output directory (default: build)")
    parser.add_argument("--environment", type=Path, help="virtual environment to copy instead of creating one")
    arguments = parser.parse_args()
    print(build(arguments.output, arguments.environment))


if __name__ == "__main__":
    main()
