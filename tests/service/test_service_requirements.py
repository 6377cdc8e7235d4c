"""Lock files in ``packaging/requirements`` pin the dependencies of the package and of ``make``, with hashes."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.version import Version

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "packaging" / "requirements"
NAMES = ("build", "broker", "test", "docs")


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def entries(name: str) -> list[str]:
    """Return the entries of a lock file, each joined with its continuation lines."""
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if not line.startswith("#")]


def pins(name: str) -> dict[str, Version]:
    """Return the pinned version of each project, ignoring environment markers."""
    found = [re.match(r"([\w.-]+)(?:\[[\w,.-]+\])?==([^\s;]+)", entry) for entry in entries(name)]
    return {normalize(match[1]): Version(match[2]) for match in found if match is not None}


def requirements(section: str, option: str) -> list[Requirement]:
    parser = ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return [Requirement(line) for line in parser[section][option].split("\n") if line.strip()]


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_has_a_version_and_hashes(name: str) -> None:
    """pip refuses entries without a hash, and an entry with a URL would depend on one host."""
    for entry in entries(name):
        assert re.match(r"[\w.-]+(\[[\w,.-]+\])?==\S+ (; .+? )? *(--hash=sha256:[0-9a-f]{64}\s*)+$", entry), entry
        assert "://" not in entry


@pytest.mark.parametrize(
    ("name", "section", "option"),
    [
        ("broker", "options", "install_requires"),
        ("test", "options", "install_requires"),
        ("test", "options.extras_require", "test"),
        ("docs", "options.extras_require", "docs"),
    ],
)
def test_locks_contain_the_requirements_of_setup_cfg(name: str, section: str, option: str) -> None:
    """After a requirement changes, ``make lock`` must be run."""
    locked = pins(name)
    for requirement in requirements(section, option):
        assert requirement.specifier.contains(locked[normalize(requirement.name)]), requirement


def test_locks_agree() -> None:
    """Tests use the versions that the package ships, and pyproject.toml accepts the pinned setuptools."""
    assert pins("broker").items() <= pins("test").items()
    assert pins("docs").items() <= pins("test").items()
    assert "setuptools" not in pins("broker")
    requires = re.search(r'requires = \["(setuptools[^"]+)"\]', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert requires is not None
    assert Requirement(requires[1]).specifier.contains(pins("build")["setuptools"])
