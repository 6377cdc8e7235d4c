"""Writes the manual pages and the shell completion: ``make manual``, or ``python packaging/manual.py DIRECTORY``.

The directory has the layout of ``/usr/share``: ``man/man1``, ``bash-completion/completions``,
``zsh/vendor-completions`` and ``fish/vendor_completions.d``.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from kreplica.cli.commands.completion import completion_script
from kreplica.cli.terminal.manual import manual_pages

ROOT = Path(__file__).parents[1]
COMPLETIONS = {
    "bash": "bash-completion/completions/kreplica",
    "zsh": "zsh/vendor-completions/_kreplica",
    "fish": "fish/vendor_completions.d/kreplica.fish",
}


def write(directory: Path) -> None:
    """Write all files; pages of commands that no longer exist are deleted."""
    pages = directory / "man" / "man1"
    shutil.rmtree(pages, ignore_errors=True)
    files = {pages / name: text for name, text in manual_pages().items()}
    files |= {directory / path: completion_script(shell) + "\n" for shell, path in COMPLETIONS.items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the manual pages and the shell completion of kreplica.")
    parser.add_argument("directory", type=Path, nargs="?", default=ROOT / "build" / "manual")
    write(parser.parse_args().directory)


if __name__ == "__main__":
    main()
