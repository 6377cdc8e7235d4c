"""Text output of faults: of the cluster, or of one broker."""

from __future__ import annotations

from typing import Any

from kreplica.cli.http.request_commands import command_of
from kreplica.cli.terminal.screen import Screen, problem_text


def print_faults(screen: Screen, faults: list[dict[str, Any]], problems: list[str]) -> None:
    """Print each fault with the command that explains it, then the problems that left data unknown."""
    if faults:
        screen.line()
        screen.line("Faults", "bold")
    for fault in faults:
        screen.line(problem_text(f"  {fault['text']}", when=fault["severity"] == "bad"))
        if fault["why"] is not None:
            screen.line(f"    {command_of('GET', fault['why'])}", "dim")
    if problems:
        screen.line()
        screen.line("Unknown", "bold")
    for problem in problems:
        screen.line(f"  {problem}")
