"""``make`` reports missing parts of Python before it creates a virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kreplica.runtime.interpreter import interpreter

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "packaging" / "check_python.py"
CHOOSE = ROOT / "packaging" / "choose_python.sh"
INTERPRETER = ROOT / "kreplica" / "runtime" / "interpreter.py"

CHECK_PROGRAM = """
import runpy, sys
{before}
runpy.run_path(sys.argv[1])
"""


def check(before: str) -> subprocess.CompletedProcess[str]:
    """Run the check in a Python that runs the given code first."""
    command = [sys.executable, "-c", CHECK_PROGRAM.format(before=before), str(CHECK)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile and the files that choose Python, in a directory with a space in its name."""
    folder = tmp_path / "a folder"
    (folder / "packaging").mkdir(parents=True)
    (folder / "kreplica" / "runtime").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(INTERPRETER, folder / "kreplica" / "runtime")
    for file in (CHECK, CHOOSE):
        shutil.copy(file, folder / "packaging")
    return folder


def make(
    checkout: Path,
    programs: dict[str, str],
    second_programs: dict[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run ``make .venv/bin/python`` with only these programs, sh and rm in ``PATH``.

    :param second_programs: programs in the second directory of ``PATH``.
    """
    folder, second = checkout / "bin", checkout / "more" / "bin"
    for each in (folder, second):
        each.mkdir(parents=True)
    for name in ("sh", "rm"):
        (folder / name).symlink_to(shutil.which(name) or name)
    for directory, scripts in ((folder, programs), (second, second_programs or {})):
        for name, text in scripts.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
    command = [shutil.which("make") or "make", ".venv/bin/python", *arguments]
    environment = {"PATH": f"{folder}:{second}", "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_suitable_python() -> None:
    """The check prints nothing if Python is complete."""
    done = check("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_old_python() -> None:
    """The error names the required and the actual version."""
    done = check("sys.version_info = (3, 9, 2)")
    assert done.returncode == 1
    assert "Python 3.11 or later is required, not 3.9 (" in done.stderr


def test_a_python_without_venv() -> None:
    """The error names Debian's separate package with ensurepip."""
    done = check("sys.modules['ensurepip'] = None")
    assert done.returncode == 1
    assert f"apt install python3.{sys.version_info[1]}-venv" in done.stderr


@pytest.mark.needs_program("make")
def test_no_python_at_all(checkout: Path) -> None:
    """The error names the Debian package that contains Python."""
    done = make(checkout, {})
    assert done.returncode == 2
    assert "Python 3.11 or later is required; Debian: apt install python3.11-venv" in done.stderr


@pytest.mark.needs_program("make")
def test_a_python_named_python3(checkout: Path) -> None:
    """python3 is used if python3.11 is missing; an incomplete environment is removed."""
    script = 'case "$1" in -m) mkdir .venv && echo made by python3 && exit 7;; esac\n'
    script = script.replace("mkdir .venv", f"{shutil.which('mkdir')} .venv")
    done = make(checkout, {"python3": "#!/bin/sh\n" + script})
    assert "made by python3" in done.stdout
    assert done.returncode == 2
    assert not os.path.exists(checkout / ".venv")


def python(is_complete: bool, name: str, build: str = "3.11.2, not optimized") -> str:
    """Return a program that passes or fails the check, and whose virtual environments cannot be created."""
    checked = f"echo '{build}'; exit 0" if is_complete else f'echo "kreplica: {name} is incomplete" >&2; exit 1'
    return f'#!/bin/sh\ncase "$1" in -m) echo made by {name}; exit 7;; *) {checked};; esac\n'


@pytest.mark.needs_program("make")
@pytest.mark.parametrize("expected", ["python3.12", "python3.13", "python3"])
def test_the_first_complete_python_is_used(checkout: Path, expected: str) -> None:
    """A Python that is too old or has no venv is not used if there is another one, whatever its name."""
    names = ("python3.11", "python3", expected)
    done = make(checkout, {name: python(name == expected, name) for name in names})
    assert f"made by {expected}\n" in done.stdout
    assert "incomplete" not in done.stderr


@pytest.mark.needs_program("make")
def test_no_complete_python(checkout: Path) -> None:
    """If no Python is complete, one line says what the first one lacks, and no environment is created."""
    done = make(checkout, {name: python(False, name) for name in ("python3.12", "python3")})
    assert [line for line in done.stderr.splitlines() if line.startswith("kreplica: ")] == [
        "kreplica: python3.12 is incomplete"
    ]
    assert "made by" not in done.stdout
    assert not (checkout / ".venv").exists()


@pytest.mark.needs_program("make")
@pytest.mark.parametrize("override", [False, True])
def test_an_optimized_python_is_preferred(checkout: Path, override: bool) -> None:
    """The optimized Python is used even if it is later in PATH; ``PYTHON=`` selects another one."""
    first = {"python3.11": python(True, "plain 3.11"), "python3.12": python(True, "plain 3.12")}
    second_programs = {
        "python3.12": python(False, "incomplete 3.12"),
        "python3.13": python(True, "optimized 3.13", "3.13.5, optimized"),
    }
    done = make(checkout, first, second_programs, ["PYTHON=python3.12"] if override else [])
    assert f"made by {'plain 3.12' if override else 'optimized 3.13'}\n" in done.stdout
    assert f"with Python {'3.11.2, not optimized' if override else '3.13.5, optimized'}\n" in done.stdout


@pytest.mark.needs_program("make")
def test_the_fastest_optimized_python_comes_first(checkout: Path) -> None:
    optimized = {f"python3.{minor}": python(True, f"3.{minor}", f"3.{minor}.1, optimized") for minor in (11, 12, 13)}
    assert "made by 3.13\n" in make(checkout, optimized).stdout


def test_build_of_this_python() -> None:
    """The check prints the same text as the banner of a cluster."""
    done = subprocess.run([sys.executable, CHECK, "--build"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"{interpreter()}\n"
