"""``make`` reports missing parts of Python before it creates a virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "packaging" / "check_python.py"

CHECKED = """
import runpy, sys
{before}
runpy.run_path(sys.argv[1])
"""


def check(before: str) -> subprocess.CompletedProcess[str]:
    """Run the check in a Python that runs the given code first."""
    command = [sys.executable, "-c", CHECKED.format(before=before), str(CHECK)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile and the check, in a directory with a space in its name."""
    folder = tmp_path / "a folder"
    (folder / "packaging").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(CHECK, folder / "packaging")
    return folder


def make(checkout: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Create the virtual environment with only these programs, and sh and rm, in ``PATH``."""
    folder = checkout / "bin"
    folder.mkdir()
    for name in ("sh", "rm"):
        (folder / name).symlink_to(shutil.which(name) or name)
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    command = [shutil.which("make") or "make", ".venv/bin/python"]
    environment = {"PATH": str(folder), "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_suitable_python() -> None:
    """Nothing is printed for a Python with everything needed."""
    done = check("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_old_python() -> None:
    """The required and the actual version are named."""
    done = check("sys.version_info = (3, 9, 2)")
    assert done.returncode == 1
    assert "Python 3.11 or later is needed, this is 3.9 (" in done.stderr


def test_a_python_without_venv() -> None:
    """Debian has ensurepip in a separate package, which is named."""
    done = check("sys.modules['ensurepip'] = None")
    assert done.returncode == 1
    assert f"apt install python3.{sys.version_info[1]}-venv" in done.stderr


@pytest.mark.needs_program("make")
def test_no_python_at_all(checkout: Path) -> None:
    """The package with Python is named."""
    done = make(checkout, {})
    assert done.returncode == 2
    assert "Python 3.11 or later is needed; Debian: apt install python3.11-venv" in done.stderr


@pytest.mark.needs_program("make")
def test_a_python_named_python3(checkout: Path) -> None:
    """python3 is used if python3.11 is missing; an incomplete environment is removed."""
    script = 'case "$1" in -m) mkdir .venv && echo made by python3 && exit 7;; esac\n'
    script = script.replace("mkdir .venv", f"{shutil.which('mkdir')} .venv")
    done = make(checkout, {"python3": "#!/bin/sh\n" + script})
    assert "made by python3" in done.stdout
    assert done.returncode == 2
    assert not os.path.exists(checkout / ".venv")
