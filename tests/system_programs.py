"""System programs that tests run, and the Debian packages that contain them.

``python tests/system_programs.py`` installs missing ones if it runs as root on Debian or Ubuntu. It needs only
the standard library, because ``make test`` runs it before anything else is installed. ``tests/conftest.py`` skips the
tests whose programs are still missing; if ``CI`` is set, they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "chromedriver": ("chromium-driver",),
    "chromium": ("chromium", "fonts-dejavu-core"),
    "curl": ("curl",),
    "dpkg-deb": ("dpkg",),
    "gcc": ("gcc", "libc6-dev"),
    "ip": ("iproute2",),
    "jq": ("jq",),
    "kcat": ("kcat",),
    "make": ("make",),
    "man": ("man-db",),
    "nft": ("nftables",),
    "systemctl": ("systemd",),
    "systemd-analyze": ("systemd",),
    "tc": ("iproute2",),
}
"""Program -> packages. A test names its programs: ``@pytest.mark.needs_program("kcat", "jq")``."""

APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30")


def missing(programs: Iterable[str] = PACKAGES) -> list[str]:
    """Return the programs that are not in ``PATH``, in the given order."""
    return [program for program in programs if shutil.which(program) is None]


def packages_of(programs: Iterable[str]) -> list[str]:
    """Return the Debian packages of these programs, sorted."""
    return sorted({package for program in programs for package in PACKAGES[program]})


def has_apt(os_release: Path = Path("/etc/os-release")) -> bool:
    """Return True on Debian, Ubuntu and derived systems that have apt-get."""
    if shutil.which("apt-get") is None or not os_release.is_file():
        return False
    rows = dict(line.split("=", 1) for line in os_release.read_text(encoding="utf-8").splitlines() if "=" in line)
    names = f"{rows.get('ID', '')} {rows.get('ID_LIKE', '')}".replace('"', "").split()
    return not {"debian", "ubuntu"}.isdisjoint(names)


def install(packages: list[str]) -> None:
    """Install packages with apt, one at a time if they cannot be installed together; print errors."""
    if _apt("update") and not _apt("install", "--yes", "--no-install-recommends", *packages):
        for package in packages:
            _apt("install", "--yes", "--no-install-recommends", package)


def _apt(*words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        [*APT, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        print(f"kreplica: apt-get {' '.join(words)}: {last}", file=sys.stderr)
    return done.returncode == 0


def main() -> None:
    absent = missing()
    if absent and os.geteuid() == 0 and has_apt():
        packages = packages_of(absent)
        print(f"kreplica: installing what the tests run with apt (once): {' '.join(packages)}", flush=True)
        install(packages)
        absent = missing()
    if absent:
        print(f"kreplica: not installed, so tests that run it are skipped: {', '.join(absent)}", flush=True)


if __name__ == "__main__":
    main()
