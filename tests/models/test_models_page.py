"""The page about the models: its table of losses, and its commands, which only the soak runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import test_models

from tests.support import model_checker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "models.md").read_text()
COMMANDS = re.findall(r"^```\n(python .*)\n```", PAGE, re.MULTILINE) + re.findall(r"`(python -m tests[^`\n]*)`", PAGE)


def test_the_table_lists_the_losses_that_are_tested():
    """The table has the same repairs, properties and numbers of states as the tests."""
    table = PAGE.partition("<!-- losses -->")[2].partition("<!-- end -->")[0]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    listed = [(model, repairs, violated, int(states)) for model, repairs, violated, states in rows]
    tested = [
        (model, "all (as designed)" if len(left_out) > 1 else left_out[0], violated, states)
        for model, left_out, violated, states in test_models.LOSSES
    ]
    assert listed == tested


def test_the_page_names_every_configuration_and_broken_rule():
    """The page has exactly the existing configurations, broken rules of V3 and properties."""
    for configuration in [*test_models.CONFIGURATIONS, "Trace"]:
        assert f"`{configuration}`" in PAGE
    broken = {name for model, changes, _ in test_models.BROKEN_RULES if model.startswith("V3") for name in changes}
    for name in broken - {"MaxVersion", "MinInsync"}:
        assert re.search(rf"^\| `{name}`", PAGE, re.MULTILINE), name


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_run(command):
    """Each command succeeds, or prints a violation if its example breaks a rule."""
    try:
        model_checker.jar()
    except model_checker.NoModelChecker as missing:
        pytest.skip(f"TLC is missing: {missing}")
    program, *arguments = shlex.split(command)
    assert program == "python"
    result = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if "=" in command:
        assert result.returncode == 1, result.stdout[-3000:]
        assert " is violated." in result.stdout
    else:
        assert result.returncode == 0, result.stdout[-3000:]
