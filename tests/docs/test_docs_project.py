"""Files for the project's developers: release notes, commit messages, hooks, CONTRIBUTING.md."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FRAGMENT = re.compile(r"(\d+|\+[a-z0-9-]+)\.(feature|bugfix|doc|removal|misc)\.md")

specification = importlib.util.spec_from_file_location(
    "check_commit_message", ROOT / "packaging" / "check_commit_message.py"
)
assert specification is not None
assert specification.loader is not None
commit_message = importlib.util.module_from_spec(specification)
specification.loader.exec_module(commit_message)


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_towncrier_builds_the_release_notes_from_all_fragments() -> None:
    """Every fragment appears in the draft of the release notes."""
    done = subprocess.run([BIN / "towncrier", "build", "--draft"], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    draft = " ".join(done.stdout.split())
    for path in sorted((ROOT / "newsfragments").glob("*.md")):
        if path.name != "README.md":
            assert FRAGMENT.fullmatch(path.name), path.name
            first_words = " ".join(path.read_text().split()[:6])
            assert first_words in draft, path.name


@pytest.mark.parametrize(
    ("message", "problems"),
    [
        ("storage: recover segments in parallel\n\nOne thread per log directory.\n", 0),
        ("kreplica/storage, tests: recover segments\n", 0),
        ("Merge branch 'main'\n", 0),
        ("storage: " + "x" * 64 + "\n", 1),
        ("recover segments in parallel\n", 1),
        ("storage: recover segments.\n", 1),
        ("storage: recover segments\nOne thread per log directory.\n", 1),
        ("", 1),
    ],
)
def test_commit_messages(message: str, problems: int) -> None:
    assert len(commit_message.problems(message)) == problems


def test_git_hooks_run_the_checks_of_make_lint() -> None:
    """The hooks run the same checks as ``make lint``."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    for command in re.findall(r"@\$\(BIN\)/(.*?)(?: \.)?$", recipe[1], re.MULTILINE):
        assert f".venv/bin/{command}" in hooks, command
    assert "stages: [commit-msg]" in hooks


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_commands_and_files_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"(?:^|`)make ([\w-]+)", text, re.MULTILINE):
        assert target in makefile_targets(), target
    for path in re.findall(r"`((?:docs|tests|packaging|etc|systemd|kreplica)/[\w./@-]+)`", text):
        assert (ROOT / path).exists(), path


MODULE_NAMES = re.compile(r"(?:^\s*\*|[;,]) *``(\w+)/?``", re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "kreplica").rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_package_docstrings_list_modules_that_exist(path: Path) -> None:
    """A list with ``*`` in a package's docstring names existing modules and subpackages."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    lists = [paragraph for paragraph in docstring.split("\n\n") if paragraph.startswith("* ")]
    listed = MODULE_NAMES.findall("\n".join(lists))
    existing = {each.stem for each in path.parent.iterdir()}
    assert {name for name in listed if name.islower()} <= existing
